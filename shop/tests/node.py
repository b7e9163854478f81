"""A real gunicorn node before real servers, and buyers who ask it over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import subprocess
import sys
import threading
from dataclasses import dataclass, field
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
from servers.valkey import Valkey
from shop.tests import servers
from shop.tests.till import eventually

#: What may read and do what a stranger may not.
BEARER = {"Authorization": f"Bearer {servers.RESTOCK_TOKEN}"}
#: Addresses of databases that need no `migrate` any more.
_migrated: set[str] = set()


def migrate(environment: dict[str, str]) -> None:
    """Bring the database of a node up to date, once: it takes longer than a node to start."""
    if environment["DATABASE_URL"] in _migrated:
        return
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, cwd=settings.BASE_DIR, env=environment, check=True)
    _migrated.add(environment["DATABASE_URL"])


@cache
def _template() -> str:
    name = f"oversold_nodes_{secrets.token_hex(4)}"
    migrate({**os.environ, "DATABASE_URL": embedded.create_database(name)})
    return name


def new_database() -> str:
    """The URL of a database for nodes, a copy of one that was migrated; dropped at the end."""
    url = embedded.create_database(f"oversold_node_{secrets.token_hex(4)}", template=_template())
    _migrated.add(url)
    return url


#: Seconds for a node to answer after its start.
START_TIMEOUT = 30.0


class Node:
    """One gunicorn with one worker, unless `environment` says otherwise. A context manager."""

    def __init__(
        self,
        log: Path,
        *,
        database_url: str,
        redis_url: str,
        threads: int = 32,
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
            "WEB_THREADS": str(threads),
            **(environment or {}),
        }
        self._server = ServerProcess("the node", log)

    def __enter__(self) -> Self:
        migrate(self.environment)
        command = (sys.executable, "-m", "gunicorn", "-c", "python:shop.gunicorn_conf")
        bind = ("--bind", f"127.0.0.1:{self.port}")
        embedded.adopt(
            self._server.start(
                [*command, *bind], folder=settings.BASE_DIR, environment=self.environment
            )
        )
        self._server.wait_until(self.is_ready, timeout=START_TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """Its gunicorn master."""
        assert self._server.process is not None, "the node does not run"
        return self._server.process

    def processes(self) -> list[psutil.Process]:
        """The master and its workers; equal to the earlier ones if none was restarted."""
        master = psutil.Process(self.process.pid)
        return [master, *master.children(recursive=True)]

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        return self.ask("GET", path)

    def restock(self, stock: int) -> int:
        """Open a sale of apples; its number."""
        body = json.dumps({"stock": stock}).encode()
        status, report = self.ask("POST", "/restock", body, BEARER)
        assert status == 201, report
        return int(report["sale"])

    def orders(self, sale: int) -> list[dict[str, Any]]:
        """Every order of a sale, oldest first."""
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            status, page = self.ask("GET", f"/sales/{sale}/orders?after={after}", headers=BEARER)
            assert status == 200, page
            found += page["orders"]
            after = page["next"]
        return found

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Status and JSON body of one request on a connection of its own."""
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            given = {"Content-Type": "application/json", **(headers or {})}
            asked.request(method, path, body, given)
            response = asked.getresponse()
            return response.status, json.loads(response.read())
        finally:
            asked.close()


@dataclass
class Crowd:
    """Buyers in threads who buy and buy, asking again with the same key until it has bought."""

    node: Node
    lock: str
    size: int = 8
    name: str = field(default_factory=secrets.token_hex)  # keys never expire
    outcomes: list[str] = field(default_factory=list)  # every outcome, in order
    bought: list[tuple[str, int]] = field(default_factory=list)  # key, order
    failed: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._threads = [
            threading.Thread(target=self._buy, args=(number,)) for number in range(self.size)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.enough.set()
        for thread in self._threads:
            thread.join(30)

    def wait_for(self, outcome: str, more: int) -> None:
        """Until `more` buyers beyond those so far were answered `outcome`."""
        wanted = self.outcomes.count(outcome) + more
        eventually(
            lambda: self.outcomes.count(outcome) >= wanted or bool(self.failed),
            what=f"{more} more are answered {outcome}; so far {set(self.outcomes)}",
            timeout=30,
        )
        assert not self.failed

    def _buy(self, number: int) -> None:
        purchase, in_doubt = 0, False
        body = json.dumps({"buyer": f"b{number}", "lock": self.lock}).encode()
        while not (self.enough.is_set() or self.failed):
            key = f"{self.name}-{number}-{purchase}"
            try:
                status, answer = self.node.ask("POST", "/buy", body, {"Idempotency-Key": key})
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
                return
            self.outcomes.append(answer["outcome"])
            in_doubt = in_doubt or answer["outcome"] == "unknown"
            if status == 200 and not in_doubt:
                self.failed.append(f"{key} has bought, and was answered that nothing was sold")
                return
            if status in (200, 201):
                self.bought.append((key, answer["order"]))
                purchase, in_doubt = purchase + 1, False
            elif status != 503:
                self.failed.append(f"{status} {answer}")
                return


def node_at(
    log: Path, *, valkey: Valkey, postgres: Postgres | None = None, **environment: str
) -> Node:
    """A node before these two servers, with these environment variables beside the usual ones.

    A test that does not stop PostgreSQL names none: a database is made sooner than a server.
    """
    if postgres is None:
        database_url = new_database()
    else:
        host = quote(str(postgres.socket_folder()), safe="")
        database_url = f"postgresql://postgres@/postgres?host={host}"
    return Node(log, database_url=database_url, redis_url=valkey.url, environment=environment)
