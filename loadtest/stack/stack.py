"""The nodes of the shop and what they need, started for one run and stopped after it."""

import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import IO, Self

import redis

from loadtest.judge.evidence import STAYS
from loadtest.judge.history import Reader
from loadtest.stack.client import Shop
from loadtest.stack.node import Node, StackError, inherited, manage
from servers import embedded, zookeeper
from servers.embedded import ROOT
from servers.loopback import runtime_folder
from servers.process import STOP_TIMEOUT
from servers.signals import uninterrupted

__all__ = ["ROOT", "Node", "Stack", "StackError", "inherited"]

#: In place of the settings of a real shop in the user's environment or .env, which would spoil a
#: demo.
PLAIN = {
    "DEBUG": "0",
    "HTTPS": "0",
    "ALLOWED_HOSTS": "localhost,127.0.0.1",
    "SHOP_BEHIND_PROXY": "0",
    "BUY_RATE_LIMIT": "",
    "SHOP_MAX_PURCHASES": "0",
    "SHOP_MAX_WAITING": "0",
    "GUNICORN_CMD_ARGS": "",
    "PYTHONUTF8": "1",
    "DJANGO_SETTINGS_MODULE": "shop.settings",
}
#: Begins the name of the database that those of all stacks are copies of.
TEMPLATE = "oversold_template_"
#: The words of manage.py that make the shop's tables.
MIGRATE = ("migrate", "--no-input", "--verbosity", "0")
#: What the nodes are called.
NAMES = "ABCDEFGH"
#: Threads of each process besides those in which its buyers may wait: the page and the reports.
SPARE_THREADS = 8
#: What may serve a node; the first one does unless another is asked for (shop/gunicorn_conf.py).
SERVERS = ("gthread", "asgi")
#: Independent servers for Redlock.
REDLOCK_SERVERS = 5
#: The strategies that need servers besides PostgreSQL and a Valkey: see `extras`.
NEED_EXTRAS = frozenset({"redlock", "zookeeper"})
#: redis-in-transaction: milliseconds between the release and the commit. Without them its flaw is
#: left to luck.
PAUSES = "unlocked_before_commit=10"


@dataclass(kw_only=True, eq=False)
class Stack:
    """PostgreSQL, Valkey and the nodes of one run. Use it as a context manager.

    With DATABASE_URL or REDIS_URL set, those servers are used and nothing of them is started or
    stopped; else the run has a database of its own in the checkout's PostgreSQL, and a Valkey of
    its own.

    count, workers, threads  application servers, processes in each, threads in each process
    log                      where the output of everything goes
    port                     where the first node should listen, if that port is free
    extras                   also five servers for Redlock, and ZooKeeper where it is installed
    record                   the nodes record what each purchase did, in a file each in `records`
    server                   what serves the nodes, one of SERVERS
    variables                of the nodes' environment, added to the usual ones, which they override

    `events()` are all that were recorded so far, `new_events()` those since its last call, oldest
    first; both raise OSError.
    """

    count: int
    workers: int
    threads: int
    log: IO[bytes]
    progress: Callable[[str], None] = lambda step: None
    port: int = 0
    extras: bool = False
    record: bool = False
    server: str = SERVERS[0]
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self.database_url = ""
        self.valkeys: list[embedded.Valkey] = []
        self.zookeeper: zookeeper.ZooKeeper | None = None
        self.nodes: list[Node] = []
        self._until = 0.0
        self._folder = tempfile.TemporaryDirectory(prefix="run-", dir=runtime_folder())
        self.records = Path(self._folder.name) / "history"
        if self.record:
            self.records.mkdir()
        reader = Reader(self.records)
        self.events, self.new_events = reader.events, reader.new_events

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def shop(self, node: int = 0) -> Shop:
        """A client of one node."""
        return Shop(self.nodes[node].url, token=self.token, name=self.nodes[node].name)

    def stop(self) -> None:
        """Stop everything that was started, nodes first. A signal does not interrupt it."""
        with uninterrupted(self._say_what_is_left):
            self._until = time.monotonic() + STOP_TIMEOUT
            self._say_what_is_left()
            for node in self.nodes:
                node.terminate()  # all at once; stop() waits for each
            for node in self.nodes:
                node.stop(self._until - time.monotonic())
            for valkey in self.valkeys:
                valkey.terminate()
            for valkey in self.valkeys:
                valkey.stop()
            if self.zookeeper is not None:
                self.zookeeper.stop()
            self._folder.cleanup()

    def _say_what_is_left(self) -> None:
        """Print what stopping waits for. Stopping goes on if the output is closed."""
        left = [f"node {node.name}" for node in self.nodes if node.server.process is not None]
        seconds = max(0.0, self._until - time.monotonic())
        waits = f": {', '.join(left)}, at most {seconds:.0f} s" if left else ""
        with suppress(OSError, SystemExit):  # rich ends the process where a pipe is closed
            self.progress(f"stopping{waits}")

    def _start(self) -> None:
        self.progress("starting PostgreSQL and Valkey")
        embedded.read_env()
        embedded.attach()
        environment = self._environment()
        self.database_url = environment["DATABASE_URL"]
        self.progress("starting the nodes")
        for number, name in enumerate(NAMES[: self.count]):
            own = self._environment_of(number, environment)
            port = self.port if number == 0 else 0
            self.nodes.append(Node(name, environment=own, log=self.log, port=port))
            self.nodes[-1].start()
        if os.environ.get("DATABASE_URL"):
            self.progress("migrating")
            manage(*MIGRATE, environment=environment, log=self.log)
        self.progress("waiting for the nodes")
        for number, node in enumerate(self.nodes):
            node.wait_until_ready(self.shop(number))
        if self.zookeeper is not None:
            self.zookeeper.wait_until_ready()

    def _environment(self) -> dict[str, str]:
        own = {
            **PLAIN,
            "DATABASE_URL": os.environ.get("DATABASE_URL") or self._own_database(),
            "REDIS_URL": os.environ.get("REDIS_URL") or self._own_valkey(),
            **(self._own_extras() if self.extras else {}),
            "SHOP_DEMO": "1",
            "SHOP_DEMO_PAUSES": PAUSES,
            "SHOP_RESTOCK_TOKEN": self.token,
            "SECRET_KEY": secrets.token_urlsafe(48),
            "WEB_SERVER": self.server,
            "WEB_WORKERS": str(self.workers),
            "WEB_THREADS": str(self.threads),
            "PYTHONUNBUFFERED": "1",
            **({"SHOP_DEMO_HISTORY": str(self.records)} if self.record else {}),
        }
        files = {f"{name}_FILE": "" for name in own}  # a file that the user names would win
        return {**inherited(), **files, **own}

    def _environment_of(self, number: int, environment: dict[str, str]) -> dict[str, str]:
        """The variables of one node: also its name, by which a history distinguishes nodes."""
        return {**environment, "SHOP_DEMO_NODE": NAMES[number], **self.variables}

    def settle(self) -> None:
        """Run a consumer of promises (`manage.py settle`) from now on."""
        self.nodes[0].settle()

    def settle_for(self, lock: str) -> None:
        """The same, if the orders of this strategy are written by one."""
        if any(one["name"] == lock and one["deferred"] for one in self.shop().strategies()):
            self.settle()

    def leaked_keys(self) -> set[str]:
        """Every key on the Valkeys of this run that no lock leaves there after a sale, behind its
        server's number and database. Empty where the servers are others'."""
        found = set()
        for number, valkey in enumerate(self.valkeys):
            for db in (0, 1):  # 1 has the locks, 0 those of Redlock and the cache
                with redis.Redis(port=valkey.port, db=db) as client:
                    keys = (key.decode() for key in client.scan_iter())
                    found |= {f"{number}/{db}/{key}" for key in keys if not STAYS.match(key)}
        return found

    def _own_database(self) -> str:
        """The URL of a database with the shop's tables, dropped at the end: a copy of one that was
        migrated once, which takes less time. Raises StackError where the migrations fail."""
        template = f"{TEMPLATE}{_digest_of_migrations()}"
        if not embedded.has_database(template):
            self.progress("migrating, once")
            first = f"oversold_first_{secrets.token_hex(4)}"
            plain = {**inherited(), **PLAIN, "DATABASE_URL_FILE": ""}
            plain["DATABASE_URL"] = embedded.create_database(first)
            manage(*MIGRATE, environment=plain, log=self.log)
            embedded.keep_as(first, template, instead_of=TEMPLATE)
        name = f"oversold_run_{os.getpid()}_{secrets.token_hex(4)}"
        return embedded.create_database(name, template=template)

    def _own_valkey(self) -> str:
        valkey = embedded.Valkey(Path(self._folder.name))
        self.valkeys.append(valkey)
        embedded.adopt(valkey.start())
        return valkey.url

    def _own_extras(self) -> dict[str, str]:
        extras = {"REDLOCK_URLS": ",".join(self._own_valkey() for _ in range(REDLOCK_SERVERS))}
        if zookeeper.is_installed():
            self.zookeeper = zookeeper.ZooKeeper(Path(self._folder.name), log=self.log)
            embedded.adopt(self.zookeeper.start())
            extras["ZOOKEEPER_HOSTS"] = self.zookeeper.hosts
        return extras


def _digest_of_migrations() -> str:
    """Changes with what `manage.py migrate` would do."""
    digest = hashlib.sha256(metadata.version("django").encode())
    for file in sorted((ROOT / "shop" / "migrations").glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
