"""A real gunicorn node: its configuration, its shutdown, and restarts of PostgreSQL."""

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis
from psycopg import sql

from servers.postgres import Postgres
from servers.valkey import Valkey
from shop.tests.node import BEARER, Node, make_node, run_python
from shop.tests.purchases import eventually


@pytest.fixture(scope="module")
def node(folder: Path, postgres: Postgres, valkey: Valkey) -> Iterator[Node]:
    """A node with one thread, so that one buyer blocks all other requests."""
    log = folder / "node.log"
    with make_node(log, postgres=postgres, valkey=valkey, WEB_THREADS="1") as node:
        yield node


@pytest.mark.parametrize(
    ("method", "path", "body", "success_status"),
    [
        ("POST", "/buy", b'{"buyer": "ada", "lock": "redis"}', 201),
        ("GET", "/sales/latest", b"", 200),
    ],
)
def test_only_one_request_fails_after_a_postgresql_restart(
    node: Node, postgres: Postgres, method: str, path: str, body: bytes, success_status: int
) -> None:
    """After a restart of PostgreSQL all pooled connections are dead, but only one request fails.

    The first request that uses a dead connection gets 503, and the node replaces all connections.
    """
    node.restock(20)
    restart(postgres)
    statuses = [node.request_json(method, path, body, BEARER)[0] for _ in range(10)]
    assert statuses == [503] + [success_status] * 9


def test_probes_notice_a_restart_of_postgresql(node: Node, postgres: Postgres) -> None:
    """/readyz reports dead connections after a restart of PostgreSQL, and then new connections.

    It may take a second to notice a change, because it returns the result of a check for a second.
    """
    node.get("/readyz")
    restart(postgres)
    eventually(
        lambda: node.get("/readyz")[0] == 503, what="the dead connections are noticed", timeout=5
    )
    eventually(lambda: node.get("/readyz")[0] == 200, what="the node is ready", timeout=5)


def test_admin_is_503_while_postgresql_is_down(node: Node, postgres: Postgres) -> None:
    """The admin answers 503 if it needs the database.

    Because of the cookie, the admin looks for a session in the database.
    """
    postgres.stop()
    try:
        status, _, content = node.request(
            "GET", "/admin/", headers={"Cookie": f"sessionid={'a' * 32}"}
        )
    finally:
        postgres.start()
    eventually(lambda: node.get("/readyz")[0] == 200, what="the node is ready")
    assert (status, json.loads(content)) == (
        503,
        {
            "outcome": "unavailable",
            "error": "the database does not answer; nothing was changed",
        },
    )


def restart(postgres: Postgres) -> None:
    """Stop and start PostgreSQL, which ends all connections to it."""
    postgres.stop()
    postgres.start()


@contextmanager
def refuse_writes(database_url: str) -> Iterator[None]:
    """Make new transactions in this database read-only, as on a standby, until the block ends."""
    with psycopg.connect(database_url, autocommit=True) as client:
        name = sql.Identifier(client.info.dbname)
        client.execute("SET default_transaction_read_only = off")
        client.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name)
        )
        try:
            # The setting applies only to new connections, so end the node's old connections.
            client.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            yield
        finally:
            client.execute(
                sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name)
            )


@pytest.mark.parametrize("server", ["gthread", "asgi"])
def test_read_only_database_is_503_until_it_accepts_writes(
    folder: Path, valkey: Valkey, server: str
) -> None:
    """While the database is read-only, /readyz and purchases are answered with 503.

    A failover may turn the primary server into a standby. Its connections must not stay in the
    pool, or purchases would fail even after the end of the outage.
    """
    purchase = b'{"buyer": "ada", "lock": "redis"}'
    log = folder / f"read-only-{server}.log"
    with make_node(log, valkey=valkey, WEB_SERVER=server) as node:
        node.restock(20)
        with refuse_writes(node.environment["DATABASE_URL"]):
            # The first probes may only notice that the old connections were ended.
            eventually(
                lambda: "read-only" in node.get("/readyz")[1]["parts"][0]["detail"],
                what="the probe notices that the database is read-only",
            )
            assert node.get("/readyz")[0] == 503
            # Ten requests use every connection of the pool, and each connection refuses.
            for _ in range(10):
                status, answer = node.request_json("POST", "/buy", purchase)
                assert (status, answer["outcome"]) == (503, "unavailable")
                status, answer = node.request_json("POST", "/restock", b'{"stock": 5}', BEARER)
                assert (status, answer["outcome"]) == (503, "unavailable")
        eventually(lambda: node.get("/readyz")[0] == 200, what="the node is ready")
        eventually(
            lambda: node.request_json("POST", "/buy", purchase)[0] == 201, what="a unit is sold"
        )
    assert "Traceback" not in log.read_text()


def test_stopping_node_is_not_ready(node: Node, valkey: Valkey) -> None:
    """After SIGTERM, /readyz answers 503, so that a load balancer sends the node no more buyers.

    The node has one thread. So the health probe waits until the buyer, who holds the lock, is
    served, and is answered after the SIGTERM. This test stops the node, so it runs last.
    """
    # The locks are in database 1. The cache is in database 0.
    with ThreadPoolExecutor(2) as pool, redis.Redis(port=valkey.port, db=1) as client:
        node.restock(1)
        purchase = pool.submit(
            node.request_json, "POST", "/buy", b'{"buyer": "ada", "lock": "redis", "hold_ms": 1500}'
        )
        eventually(lambda: client.exists("lock:{redis:apple}"), what="the buyer has the lock")
        probe = pool.submit(node.get, "/readyz")
        time.sleep(0.5)  # long enough for the probe to arrive; no event shows its arrival
        node.process.send_signal(signal.SIGTERM)
        assert purchase.result(20)[0] == 201
        assert probe.result(20) == (503, {"status": "stopping"})


# --- configuration: open files, and the connections that they allow -------------------------------


#: Sets the soft and the hard limit of open files, imports gunicorn's configuration, and prints the
#: new soft limit and the maximum number of connections.
PRINT_LIMITS = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, tuple(map(int, sys.argv[1:])))
from shop import gunicorn_conf as conf
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE)[0], conf.worker_connections]))
"""


@pytest.mark.parametrize(
    ("soft_limit", "hard_limit", "raised_limit", "connections"),
    [
        # The limits of a usual shell. 3 files for each of the 100 threads, and 100 other files,
        # are not used for connections.
        (1024, 8192, 8192, 8192 - 3 * 100 - 100),
        # Limits that are too low. At least one connection for each of the 100 threads, and one
        # idle connection, are allowed.
        (256, 256, 256, 101),
    ],
)
def test_open_file_limit_is_raised_and_caps_the_connections(
    soft_limit: int, hard_limit: int, raised_limit: int, connections: int
) -> None:
    """gunicorn raises the soft limit of open files to the hard limit.

    The hard limit determines the maximum number of connections (worker_connections).
    """
    completed = run_python("-c", PRINT_LIMITS, str(soft_limit), str(hard_limit), WEB_THREADS="100")
    assert json.loads(completed.stdout) == [raised_limit, connections]


#: Calls the hook on_starting() of gunicorn's configuration, and prints what it has imported.
PRINT_IMPORTS = """
import gc, json, sys
from shop import gunicorn_conf as conf
conf.on_starting(None)
shop_modules = ("shop.settings", "shop.models", "shop.views")
print(json.dumps({
    "missing libraries": [name for name in conf.LIBRARIES if name not in sys.modules],
    "modules of the shop": [name for name in shop_modules if name in sys.modules],
    "has frozen objects": gc.get_freeze_count() > 10_000,
}))
"""


def test_gunicorn_master_imports_libraries_but_not_the_shop() -> None:
    """The gunicorn master imports libraries before it starts workers, but no module of the shop.

    If it imported the shop, new workers would still run the old code after a SIGHUP. The objects
    of the libraries are frozen (gc.freeze), so that the workers can share their memory.
    """
    assert json.loads(run_python("-c", PRINT_IMPORTS).stdout) == {
        "missing libraries": [],
        "modules of the shop": [],
        "has frozen objects": True,
    }
