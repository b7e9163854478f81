"""A gunicorn node with real servers, and buyers who buy from it over HTTP."""

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
from servers.loopback import free_port
from servers.postgres import Postgres
from servers.process import ServerProcess
from servers.tests.polling import eventually
from servers.valkey import Valkey
from shop.tests import servers

#: Authorizes a request to restock, and to read buyers and keys.
BEARER = {"Authorization": f"Bearer {servers.RESTOCK_TOKEN}"}
#: Addresses of databases that need no `migrate` any more.
_migrated_urls: set[str] = set()


def migrate(environment: dict[str, str]) -> None:
    """Bring the database of a node up to date, once: it takes longer than a node to start."""
    if environment["DATABASE_URL"] in _migrated_urls:
        return
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, cwd=settings.BASE_DIR, env=environment, check=True)
    _migrated_urls.add(environment["DATABASE_URL"])


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's folder, with the settings of `environment` only."""
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
def _template() -> str:
    name = f"oversold_nodes_{secrets.token_hex(4)}"
    migrate({**os.environ, "DATABASE_URL": embedded.create_database(name)})
    return name


def new_database() -> str:
    """Return the URL of a migrated database for nodes; it is dropped at the end of the run."""
    url = embedded.create_database(f"oversold_node_{secrets.token_hex(4)}", template=_template())
    _migrated_urls.add(url)
    return url


#: Seconds for a node to answer after its start.
START_TIMEOUT_SECONDS = 30.0


class Node:
    """A gunicorn with one worker, unless `environment` has another number. A context manager."""

    def __init__(
        self,
        log: Path,
        *,
        database_url: str,
        redis_url: str,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.log = log
        self.port = free_port()
        self.environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "SHOP_DEMO": "1",
            "SHOP_DB_POOL": "8",
            "SHOP_RESTOCK_TOKEN": servers.RESTOCK_TOKEN,
            "WEB_WORKERS": "1",
            "WEB_THREADS": "32",
            **(environment or {}),
        }
        self._server = ServerProcess("the node", log)

    def __enter__(self) -> Self:
        migrate(self.environment)
        command = (sys.executable, "-m", "gunicorn", "-c", "python:shop.gunicorn_conf")
        bind = ("--bind", f"127.0.0.1:{self.port}")
        embedded.kill_at_exit(
            self._server.start(
                [*command, *bind], folder=settings.BASE_DIR, environment=self.environment
            )
        )
        self._server.wait_until(self.is_ready, timeout=START_TIMEOUT_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the gunicorn master."""
        assert self._server.process is not None, "the node does not run"
        return self._server.process

    def processes(self) -> list[psutil.Process]:
        """Return the master and its workers; equal to the earlier ones if none was restarted."""
        master = psutil.Process(self.process.pid)
        return [master, *master.children(recursive=True)]

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        return self.ask("GET", path)

    def restock(self, stock: int, lock: str | None = None) -> int:
        """Open a sale of apples for this strategy, and return its number."""
        body = json.dumps({"stock": stock} | ({"lock": lock} if lock else {})).encode()
        status, report = self.ask("POST", "/restock", body, BEARER)
        assert status == 201, report
        return int(report["sale"])

    def orders(self, sale: int) -> list[dict[str, Any]]:
        """Return every order of a sale, oldest first."""
        orders: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            status, page = self.ask("GET", f"/sales/{sale}/orders?after={after}", headers=BEARER)
            assert status == 200, page
            orders += page["orders"]
            after = page["next"]
        return orders

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send one request with a JSON body, and return the status and the JSON of its answer."""
        json_headers = {"Content-Type": "application/json", **(headers or {})}
        status, _, text = self.request(method, path, body, json_headers)
        return status, json.loads(text)

    def request(
        self, method: str, path: str, body: Any = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send one request on a new connection; return the answer's status, headers and body.

        An iterator as the body is sent in chunks.
        """
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            client.request(method, path, body, headers or {})
            response = client.getresponse()
            return response.status, response.headers, response.read()
        finally:
            client.close()


def node_at(
    log: Path, *, valkey: Valkey, postgres: Postgres | None = None, **environment: str
) -> Node:
    """Return a node with these two servers, with these environment variables added.

    A test that does not stop PostgreSQL passes none: a new database is faster than a new server.
    """
    if postgres is None:
        database_url = new_database()
    else:
        host = quote(str(postgres.socket_folder()), safe="")
        database_url = f"postgresql://postgres@/postgres?host={host}"
    return Node(log, database_url=database_url, redis_url=valkey.url, environment=environment)


# --- more buyers than units at once ---------------------------------------------------------------

UNITS = 5
BUYERS = 12


def rush(node: Node, lock: str) -> tuple[int, int]:
    """Run a rush, and return its orders and the stock left.

    A buyer answered `busy` retries; every other answer is `sold`, with an order, or `sold_out`.
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
            _, answer = node.ask("POST", "/buy", body, key)
            outcome = answer["outcome"]
        outcomes.append(outcome)

    buyers = [threading.Thread(target=buy, args=(number,)) for number in range(BUYERS)]
    for buyer in buyers:
        buyer.start()
    for buyer in buyers:
        buyer.join(30)
    eventually(
        lambda: node.get(f"/sales/{sale}")[1]["unsettled"] in (0, None),
        what="every promise is settled",
    )
    report = node.get(f"/sales/{sale}")[1]
    assert len(outcomes) == BUYERS, lock
    assert set(outcomes) <= {"sold", "sold_out"}, lock
    assert outcomes.count("sold") == report["orders"], lock
    return report["orders"], report["stock_left"]
