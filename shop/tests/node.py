"""Helpers for tests that need another process: a node, which is a gunicorn that serves the shop.

The nodes use real servers, and buyers buy from them over HTTP. run_python() runs any other program.
"""

import http.client
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psutil
from django.conf import settings

from servers import embedded
from servers.loopback import find_free_port
from servers.postgres import Postgres
from servers.process import ServerProcess
from servers.tests.polling import eventually
from servers.valkey import Valkey
from shop.tests.servers import RESTOCK_TOKEN

#: The header that authorizes a request to restock, or to read the buyers and keys of orders.
BEARER = {"Authorization": f"Bearer {RESTOCK_TOKEN}"}
#: URLs of databases whose migrations are all applied.
_migrated_urls: set[str] = set()


def migrate(environment: dict[str, str]) -> None:
    """Apply all migrations to a node's database, unless this process has already migrated it.

    To run `manage.py migrate` again would more than double the time that a node takes to start.

    environment  the node's environment variables; DATABASE_URL is the database
    """
    if environment["DATABASE_URL"] in _migrated_urls:
        return
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, cwd=settings.BASE_DIR, env=environment, check=True)
    _migrated_urls.add(environment["DATABASE_URL"])


def run_python(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's folder until it exits, and return its exit code and output.

    The process has only these environment variables: those in `environment`, PATH, HOME, LANG and
    DJANGO_SETTINGS_MODULE. Raises TimeoutExpired after 30 s.

    command  the arguments of the Python interpreter
    """
    system_environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=settings.BASE_DIR,
        env={"DJANGO_SETTINGS_MODULE": "shop.settings", **system_environment, **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )


@cache
def _create_template() -> str:
    """Create the template of the nodes' databases, which is migrated, and return its name.

    Copying the template for each node is faster than running the migrations for each node.
    """
    name = f"oversold_nodes_{secrets.token_hex(4)}"
    migrate({**os.environ, "DATABASE_URL": embedded.create_database(name)})
    return name


def create_migrated_database() -> str:
    """Create a database with all tables, and return its URL.

    The database is dropped when this process ends.
    """
    name = f"oversold_node_{secrets.token_hex(4)}"
    url = embedded.create_database(name, template=_create_template())
    _migrated_urls.add(url)
    return url


#: Maximum time from the start of a node to its first answer.
START_TIMEOUT_SECONDS = 30.0


class Node:
    """A gunicorn that serves the shop during a block: `with node: ...`.

    log          the file to which gunicorn and the shop write their output
    environment  all environment variables of the node. The argument of this name has those that
                 differ from this process's variables and from the defaults in __init__()
    """

    def __init__(
        self,
        log: Path,
        *,
        database_url: str,
        redis_url: str,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.log = log
        self.port = find_free_port()
        self.environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "SHOP_DEMO": "1",
            "SHOP_DB_POOL": "8",
            "SHOP_RESTOCK_TOKEN": RESTOCK_TOKEN,
            "WEB_WORKERS": "1",
            "WEB_THREADS": "32",
            **(environment or {}),
        }
        self._server = ServerProcess("the node", log)

    def __enter__(self) -> Self:
        """Migrate the database, start gunicorn, and wait until the node is ready."""
        migrate(self.environment)
        command = [sys.executable, "-m", "gunicorn", "-c", "python:shop.gunicorn_conf"]
        command += ["--bind", f"127.0.0.1:{self.port}"]
        pid = self._server.start(command, folder=settings.BASE_DIR, environment=self.environment)
        embedded.kill_at_exit(pid)
        self._server.wait_until(self.is_ready, timeout=START_TIMEOUT_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the gunicorn master."""
        assert self._server.process is not None, "the node does not run"
        return self._server.process

    def find_processes(self) -> list[psutil.Process]:
        """Return the gunicorn master process, followed by its worker processes."""
        master = psutil.Process(self.process.pid)
        return [master, *master.children(recursive=True)]

    def is_ready(self) -> bool:
        """Return whether GET /readyz is answered with 200."""
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Send a GET request, and return the status and the JSON of the answer."""
        return self.request_json("GET", path)

    def restock(self, stock: int, lock: str | None = None) -> int:
        """Open a sale of apples, and return its number.

        lock  the strategy that will sell the units; None: the node's default
        """
        fields: dict[str, Any] = {"stock": stock}
        if lock is not None:
            fields["lock"] = lock
        status, report = self.request_json("POST", "/restock", json.dumps(fields).encode(), BEARER)
        assert status == 201, report
        return int(report["sale"])

    def read_orders(self, sale: int) -> list[dict[str, Any]]:
        """Return every order of a sale, oldest first."""
        orders: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            status, page = self.request_json(
                "GET", f"/sales/{sale}/orders?after={after}", headers=BEARER
            )
            assert status == 200, page
            orders += page["orders"]
            after = page["next"]
        return orders

    def request_json(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send one request with a JSON body or none. Return the answer's status and JSON."""
        json_headers = {"Content-Type": "application/json", **(headers or {})}
        status, _, content = self.request(method, path, body, json_headers)
        return status, json.loads(content)

    def request(
        self, method: str, path: str, body: Any = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send one request on a new connection. Return the answer's status, headers and body.

        body  bytes, or an iterator of bytes, which is sent with `Transfer-Encoding: chunked`
        """
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            client.request(method, path, body, headers or {})
            response = client.getresponse()
            return response.status, response.headers, response.read()
        finally:
            client.close()


def make_node(
    log: Path, *, valkey: Valkey, postgres: Postgres | None = None, **environment: str
) -> Node:
    """Return a node that uses these servers. `with node: ...` starts it.

    postgres     the node's PostgreSQL server. By default the node gets a new database on the server
                 that all tests share, which no test may stop
    environment  more environment variables of the node
    """
    if postgres is None:
        database_url = create_migrated_database()
    else:
        host = quote(str(postgres.socket_folder()), safe="")
        database_url = f"postgresql://postgres@/postgres?host={host}"
    return Node(log, database_url=database_url, redis_url=valkey.url, environment=environment)


# --- a rush: more buyers than units, at the same moment -------------------------------------------

#: Units on sale in rush().
UNITS = 5
#: Buyers in rush().
BUYERS = 12


def rush(node: Node, lock: str) -> tuple[int, int]:
    """Open a sale of 5 units (UNITS), and let 12 buyers (BUYERS) buy at the same moment.

    A buyer retries while the answer is `busy`. Asserts that each buyer's last answer is `sold` or
    `sold_out`, and that there is an order for each `sold`. Return the number of orders and the
    units left.

    lock  the strategy under which the buyers buy
    """
    sale = node.restock(UNITS, lock)
    barrier = threading.Barrier(BUYERS)
    outcomes: list[str] = []

    def buy(number: int) -> None:
        barrier.wait(10)
        body = json.dumps({"lock": lock, "buyer": f"b{number}"}).encode()
        key = {"Idempotency-Key": secrets.token_hex()}
        outcome = "busy"
        while outcome == "busy":
            _, answer = node.request_json("POST", "/buy", body, key)
            outcome = answer["outcome"]
        outcomes.append(outcome)

    buyers = [threading.Thread(target=buy, args=(number,)) for number in range(BUYERS)]
    for buyer in buyers:
        buyer.start()
    for buyer in buyers:
        buyer.join(30)
    # Under `reserve` the orders are written later, when `unsettled` is 0. Under other strategies
    # `unsettled` may be None.
    eventually(
        lambda: node.get(f"/sales/{sale}")[1]["unsettled"] in (0, None),
        what="every order is written",
    )
    report = node.get(f"/sales/{sale}")[1]
    assert len(outcomes) == BUYERS, lock
    assert set(outcomes) <= {"sold", "sold_out"}, lock
    assert outcomes.count("sold") == report["orders"], lock
    return report["orders"], report["stock_left"]
