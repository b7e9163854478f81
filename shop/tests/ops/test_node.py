"""A real gunicorn node: PostgreSQL restarts, the node itself is stopped; and its configuration."""

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from servers.postgres import Postgres
from servers.valkey import Valkey
from shop.tests.node import BEARER, Node, node_at, run
from shop.tests.purchases import eventually


@pytest.fixture(scope="module")
def node(folder: Path, postgres: Postgres, valkey: Valkey) -> Iterator[Node]:
    """Of one thread, so that a buyer keeps everybody else waiting."""
    log = folder / "node.log"
    with node_at(log, postgres=postgres, valkey=valkey, WEB_THREADS="1") as node:
        yield node


@pytest.mark.parametrize(
    ("method", "path", "body", "good"),
    [
        ("POST", "/buy", b'{"buyer": "ada", "lock": "redis"}', 201),
        ("GET", "/sales/latest", b"", 200),
        ("GET", "/readyz", b"", 200),
    ],
)
def test_restart_of_postgresql_costs_one_refusal(
    node: Node, postgres: Postgres, method: str, path: str, body: bytes, good: int
) -> None:
    """Every connection in the pool is dead then; the first one to meet one throws out all."""
    node.restock(20)
    node.get("/readyz")
    postgres.stop()
    postgres.start()
    if path == "/readyz":  # a probe is answered from memory for a second
        eventually(lambda: node.get(path)[0] == 503, what="its connections are dead", timeout=5)
        eventually(lambda: node.get(path)[0] == 200, what="it is ready", timeout=5)
        return
    answers = [node.ask(method, path, body, BEARER)[0] for _ in range(10)]
    assert answers == [503] + [good] * 9


def test_stopping_node_is_not_ready(node: Node, valkey: Valkey) -> None:
    """A load balancer that still asks must send nobody else. Runs last: the node is gone."""
    with ThreadPoolExecutor(2) as pool, redis.Redis(port=valkey.port, db=1) as client:
        node.restock(1)
        buying = pool.submit(
            node.ask, "POST", "/buy", b'{"buyer": "ada", "lock": "redis", "hold_ms": 1500}'
        )
        eventually(lambda: client.exists("lock:{redis:apple}"), what="the buyer is inside")
        asked = pool.submit(node.get, "/readyz")
        time.sleep(0.5)  # it is accepted, and waits for the thread
        node.process.send_signal(signal.SIGTERM)
        assert buying.result(20)[0] == 201
        assert asked.result(20) == (503, {"status": "stopping"})


# --- its configuration: open files, and connections that fit into them ----------------------------


SHOW = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, tuple(map(int, sys.argv[1:])))
from shop import gunicorn_conf as conf
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE)[0], conf.worker_connections]))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (1024, 8192, 8192, 7792),  # a usual shell
        (256, 256, 256, 101),  # more than threads, or none could be kept
    ],
)
def test_open_files_are_raised_to_the_hard_limit_and_connections_fit_in(
    soft: int, hard: int, raised: int, connections: int
) -> None:
    done = run("-c", SHOW, str(soft), str(hard), WEB_THREADS="100")
    assert json.loads(done.stdout) == [raised, connections]


BEGIN = """
import gc, json, sys
from shop import gunicorn_conf as conf
conf.on_starting(None)
shops = [name for name in ("shop.settings", "shop.models", "shop.views") if name in sys.modules]
unloaded = [name for name in conf.LIBRARIES if name not in sys.modules]
print(json.dumps([unloaded, shops, gc.get_freeze_count() > 10_000]))
"""


def test_master_imports_libraries_but_not_the_shop() -> None:
    """Else SIGHUP would bring none of its new code."""
    assert json.loads(run("-c", BEGIN).stdout) == [[], [], True]
