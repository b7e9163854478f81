"""The nodes of the shop and the servers that they need, for the time of one run."""

import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Self, TypeVar

from loadtest.expected import EXPECTED, TRAITS
from loadtest.judge.history import Reader
from loadtest.judge.mechanism import PERMANENT_KEYS
from loadtest.stack.client import Shop, StrategyFacts
from loadtest.stack.databases import DATABASES, POSTGRES, choose_database, set_parameters
from loadtest.stack.mysql_server import require_server
from loadtest.stack.node import ShopNode, StackError, make_child_environment, run_manage_py
from loadtest.stack.strategies import describe_strategies
from loadtest.stack.watch import WatchedServer, run_while_servers_live
from servers import embedded, mariadb, zookeeper
from servers.embedded import ROOT, VAR
from servers.loopback import make_runtime_folder
from servers.mariadb import MariaDB
from servers.process import STOP_TIMEOUT_SECONDS
from servers.server_errors import NotReady, advise_on_disk
from servers.signals import uninterrupted
from servers.valkey import client_at

__all__ = ["ROOT", "ShopNode", "Stack", "StackError", "make_child_environment"]

T = TypeVar("T")
#: Settings that override the user's environment and .env, which may be made for production.
DEMO_SETTINGS = {
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
#: Prefix of the template database. The database of every run is copied from the template.
TEMPLATE_PREFIX = "oversold_template_"
#: Arguments of manage.py that make the shop's tables.
MIGRATE_ARGUMENTS = ("migrate", "--no-input", "--verbosity", "0")
NODE_NAMES = "ABCDEFGH"
#: Additional threads of each process. They serve the page and the reports while buyers occupy all
#: other threads.
SPARE_THREADS = 8
#: Gunicorn's worker kinds for a node, the default first (shop/gunicorn_conf.py).
SERVERS = ("gthread", "asgi")
#: Number of Redlock's independent servers.
REDLOCK_SERVERS = 5
#: The strategies that need the extra servers of a stack (Stack.extras).
STRATEGIES_WITH_EXTRAS = frozenset({"redlock", "zookeeper"})
#: Pauses of purchases: `point=milliseconds`. The strategy redis-in-transaction releases its lock
#: before its commit. It oversells if another buyer reads the stock between the two. Without a pause
#: there this would happen only by luck.
DEMO_PAUSES = "unlocked_before_commit=10"


def show_no_progress(step: str) -> None:
    """Ignore the name of the step that begins."""


@dataclass(kw_only=True, eq=False)
class Stack:
    """PostgreSQL, Valkey and the nodes of one run. Use it as a context manager.

    If DATABASE_URL or REDIS_URL is set, the run uses that server and neither starts nor stops it.
    Otherwise the run gets a new Valkey, and a new database: in the checkout's PostgreSQL, in a new
    MariaDB, or in a new file of SQLite.

    workers    processes of each node
    threads    threads of each process
    log        the file for the output of all processes
    progress   called with the name of each step that begins, for the user
    port       the port of the first node, if that port is free
    extras     also start five servers for Redlock, and ZooKeeper if installed
    record     each node records its purchases in a file of the folder `records`
    server     gunicorn's worker kind, one of SERVERS
    database   a key of DATABASES; the default POSTGRES is replaced by the database of DATABASE_URL
    variables  environment variables of the nodes, which override the usual ones

    `missing` maps a setting such as REDLOCK_URLS to the reason why its servers did not start. The
    strategies that need the setting are unavailable.

    `run_while_alive` reports the end of a node, of a Valkey, of PostgreSQL, and of each server in
    `watched_servers`.

    `events()` returns all recorded events, oldest first. `read_new_events()` returns the events
    since its last call. Both raise OSError.
    """

    node_count: int
    workers: int
    threads: int
    log: IO[bytes]
    progress: Callable[[str], None] = show_no_progress
    port: int = 0
    extras: bool = False
    record: bool = False
    server: str = SERVERS[0]
    database: str = POSTGRES
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self.database_url = ""
        self.valkeys: list[embedded.Valkey] = []
        self.zookeeper: zookeeper.ZooKeeper | None = None
        self.mariadb: MariaDB | None = None
        self.missing: dict[str, str] = {}
        self.watched_servers: list[WatchedServer] = []
        self.nodes: list[ShopNode] = []
        self._stop_deadline = 0.0
        self._has_own_postgres = False
        self._folder = tempfile.TemporaryDirectory(prefix="run-", dir=make_runtime_folder())
        self.records = Path(self._folder.name) / "history"
        if self.record:
            self.records.mkdir()
        reader = Reader(self.records)
        self.events = reader.events
        self.read_new_events = reader.read_new_events

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
        """Return a client of one node."""
        return Shop(self.nodes[node].url, token=self.token, name=self.nodes[node].name)

    def strategies(self, names: Iterable[str] = ()) -> list[StrategyFacts]:
        """Return the traits of the strategies with these names, by default of all strategies.

        A strategy is unavailable if its servers did not start. It has a `complaint` if the list of
        GET /strategies differs from loadtest/expected.py.

        Raises ShopUnreachable if the shop does not answer. Without `names`, raises StackError if
        the shop lists a strategy that is not in loadtest/expected.py.
        """
        listing = self.shop().strategies()
        chosen_names = list(names) or list(EXPECTED)
        unexpected_names = {str(entry.get("name")) for entry in listing} - set(EXPECTED)
        if unexpected_names and not names:
            raise StackError(
                f"GET /strategies lists {', '.join(sorted(unexpected_names))}, without an expected "
                "verdict: add a row and traits to loadtest/expected.py"
            )
        environment = self.nodes[0].environment
        return describe_strategies(
            chosen_names, listing, environment, missing=self.missing, database=self.database
        )

    def run_while_alive(self, work: Callable[[], T]) -> T:
        """Call `work`, which makes requests to the servers, and return its result.

        If a server ends, StackError is raised at once, with the server's name and log. `work` runs
        in a thread, so it must not start a process.
        """
        return run_while_servers_live(work, self.why_ended)

    def why_ended(self) -> str:
        """Return a message if a server of this stack has ended by itself, or if the disk is full.

        Empty while all servers run and the disk has space.
        """
        for node in self.nodes:
            if message := node.why_ended():
                return message
        return self._why_server_ended_or_disk_is_full()

    def _why_server_ended_or_disk_is_full(self) -> str:
        """Return a message if a server that the nodes use has ended, or if the disk is full.

        Empty otherwise. The nodes themselves are not checked.
        """
        messages = [valkey.why_ended() for valkey in self.valkeys]
        messages += [server.why_ended() for server in self.watched_servers]
        if self._has_own_postgres:
            messages.append(embedded.why_postgres_ended())
        if not any(messages):
            messages = [advise_on_disk(folder) for folder in (VAR, self.records.parent)]
        return next(filter(None, messages), "")

    def stop(self) -> None:
        """Stop all nodes and servers of this run, nodes first. Signals do not interrupt this."""
        with uninterrupted(self._print_running_nodes):
            self._stop_deadline = time.monotonic()
            # After a failure the answers to the last requests do not matter. So the nodes get no
            # time to finish.
            if not self.why_ended():
                self._stop_deadline += STOP_TIMEOUT_SECONDS
            self._print_running_nodes()
            for node in self.nodes:
                node.terminate()  # SIGTERM for all nodes at once; stop() below waits for each
            for node in self.nodes:
                node.stop(self._stop_deadline - time.monotonic())
            for valkey in self.valkeys:
                valkey.terminate()
            for valkey in self.valkeys:
                valkey.stop()
            if self.zookeeper is not None:
                self.zookeeper.stop()
            if self.mariadb is not None:
                self.mariadb.stop()
            self._folder.cleanup()

    def _print_running_nodes(self) -> None:
        """Show the step `stopping`, with the nodes that still run and the time that they have left.

        If the output is closed, do nothing.
        """
        running_nodes = [
            f"node {node.name}" for node in self.nodes if node.server.process is not None
        ]
        seconds = max(0.0, self._stop_deadline - time.monotonic())
        step = "stopping"
        if running_nodes:
            step += f": {', '.join(running_nodes)}, at most {seconds:.0f} s"
        with suppress(OSError, SystemExit):  # rich ends the process if the output pipe is closed
            self.progress(step)

    def _start(self) -> None:
        """Start the servers and the nodes, and wait until they are ready."""
        embedded.read_env()
        self.database = choose_database(self.database, os.environ.get("DATABASE_URL", ""))
        self.progress(f"starting {DATABASES[self.database].title} and Valkey")
        embedded.attach()  # create_database() and kill_at_exit() need it
        self._has_own_postgres = self.database == POSTGRES and not os.environ.get("DATABASE_URL")
        environment = self._start_servers()
        self.database_url = environment["DATABASE_URL"]
        self.progress("starting the nodes")
        for number, name in enumerate(NODE_NAMES[: self.node_count]):
            variables = self._make_node_environment(number, environment)
            preferred_port = 0  # any free port
            if number == 0:
                preferred_port = self.port
            node = ShopNode(
                name, environment=variables, log=self.log, preferred_port=preferred_port
            )
            self.nodes.append(node)
            node.start()
        if os.environ.get("DATABASE_URL"):  # a new database has its tables already
            self.progress("migrating")
            run_manage_py(*MIGRATE_ARGUMENTS, environment=environment, log=self.log)
        self.progress("waiting for the nodes")
        run_while_servers_live(self._wait_for_nodes, self._why_server_ended_or_disk_is_full)
        self._wait_for_zookeeper()

    def _start_servers(self) -> dict[str, str]:
        """Start the servers that the nodes need, and return the variables that all nodes share."""
        variables = {
            **DEMO_SETTINGS,
            "DATABASE_URL": self._prepare_database(),
            "REDIS_URL": os.environ.get("REDIS_URL") or self._start_valkey(),
            "SHOP_DEMO": "1",
            "SHOP_DEMO_PAUSES": DEMO_PAUSES,
            "SHOP_RESTOCK_TOKEN": self.token,
            "SECRET_KEY": secrets.token_urlsafe(48),
            "WEB_SERVER": self.server,
            "WEB_WORKERS": str(self.workers),
            "WEB_THREADS": str(self.threads),
            "PYTHONUNBUFFERED": "1",
        }
        if self.extras:
            variables |= self._start_extras()
        if self.record:
            variables["SHOP_DEMO_HISTORY"] = str(self.records)
        # A variable such as DATABASE_URL_FILE names a file that would override DATABASE_URL.
        empty_file_variables = {f"{name}_FILE": "" for name in variables}
        return {**make_child_environment(), **empty_file_variables, **variables}

    def _make_node_environment(self, number: int, environment: dict[str, str]) -> dict[str, str]:
        """Return the environment variables of one node.

        SHOP_DEMO_NODE is the name under which the node records events.

        environment  the variables that all nodes share
        """
        return {**environment, "SHOP_DEMO_NODE": NODE_NAMES[number], **self.variables}

    def start_order_consumers(self) -> None:
        """Start an order consumer (`manage.py settle`) at the first node.

        It writes orders that were promised in Redis to the database.
        """
        self.nodes[0].start_order_consumer()

    def start_order_consumers_for(self, lock: str) -> None:
        """Start an order consumer if this strategy needs one.

        A `deferred` strategy answers `sold` when an order is promised in Redis. A consumer writes
        the order to the database later.

        lock  the name of the strategy
        """
        if lock in TRAITS and TRAITS[lock].deferred:
            self.start_order_consumers()

    def find_leaked_keys(self) -> set[str]:
        """Return the keys on the Valkeys of this run, except those that may stay after a sale.

        A key is returned as `<server's number>/<database>/<key>`. Empty if this run has no Valkey.
        """
        leaked_keys = set()
        for number, valkey in enumerate(self.valkeys):
            for db in (0, 1):  # the locks are in 1; Redlock's locks and the cache are in 0
                with client_at(valkey.port, db=db) as client:
                    keys = map(str, client.scan_iter())
                    leaked_keys |= {
                        f"{number}/{db}/{key}" for key in keys if not PERMANENT_KEYS.match(key)
                    }
        return leaked_keys

    def _prepare_database(self) -> str:
        """Return the URL of the run's database: DATABASE_URL, or the URL of a new database.

        Raises StackError if the run cannot use the server of DATABASE_URL.
        """
        url = os.environ.get("DATABASE_URL", "")
        if not url:
            return self._create_database()
        database = DATABASES[self.database]
        if database.vendor == "mysql":
            require_server(
                url, self.database, threads=self.node_count * self.workers * self.threads
            )
        if self.database == POSTGRES:
            return url
        return set_parameters(url, database)

    def _create_database(self) -> str:
        """Create a database for this run, with the shop's tables, and return its URL."""
        if self.database == POSTGRES:
            return self._create_postgres_database()
        database = DATABASES[self.database]
        if database.vendor == "sqlite":
            url = set_parameters(f"sqlite:///{self._folder.name}/shop.sqlite3", database)
        else:
            url = self._start_mariadb().url(**database.parameters)
        # DATABASE_URL_FILE would override DATABASE_URL. Without SHOP_DEMO the shop refuses to use
        # SQLite or MariaDB.
        environment = {**make_child_environment(), **DEMO_SETTINGS, "DATABASE_URL_FILE": ""}
        environment |= {"DATABASE_URL": url, "SHOP_DEMO": "1"}
        self.progress("migrating")
        run_manage_py(*MIGRATE_ARGUMENTS, environment=environment, log=self.log)
        return url

    def _start_mariadb(self) -> MariaDB:
        """Start MariaDB for this run.

        Raises StackError if MariaDB or PyMySQL is not installed, and EmbeddedError if the server
        does not start.
        """
        if not mariadb.is_installed():
            raise StackError(mariadb.MISSING)
        if find_spec("pymysql") is None:
            raise StackError(mariadb.CLIENT_MISSING)
        self.mariadb = MariaDB(Path(self._folder.name), log=self.log)
        embedded.kill_at_exit(self.mariadb.start())
        self.mariadb.wait_until_ready()
        self.watched_servers.append(self.mariadb)
        return self.mariadb

    def _create_postgres_database(self) -> str:
        """Create a PostgreSQL database with the shop's tables, and return its URL.

        The database is dropped at the end of the run. It is a copy of a template that was migrated
        once, because copying is faster than migrating. Raises StackError if the migrations fail.
        """
        template = f"{TEMPLATE_PREFIX}{_compute_migrations_digest()}"
        if not embedded.has_database(template):
            self.progress("migrating, once")
            # Other runs copy any database with the template's name. So the new template gets this
            # name only when it has all tables.
            new_template = f"oversold_first_{secrets.token_hex(4)}"
            environment = {**make_child_environment(), **DEMO_SETTINGS, "DATABASE_URL_FILE": ""}
            environment["DATABASE_URL"] = embedded.create_database(new_template)
            run_manage_py(*MIGRATE_ARGUMENTS, environment=environment, log=self.log)
            embedded.keep_database_as(new_template, template, replaced_prefix=TEMPLATE_PREFIX)
        name = f"oversold_run_{os.getpid()}_{secrets.token_hex(4)}"
        return embedded.create_database(name, template=template)

    def _start_valkey(self) -> str:
        """Start a Valkey and return its URL. Raises NotReady."""
        valkey = embedded.Valkey(Path(self._folder.name), log=self.log)
        # The Valkey is in the list before it starts, so that stop() stops it even if Ctrl-C
        # interrupts its start.
        self.valkeys.append(valkey)
        try:
            embedded.kill_at_exit(valkey.start())
        except NotReady:
            self.valkeys.remove(valkey)
            raise
        return valkey.url

    def _start_extras(self) -> dict[str, str]:
        """Start the servers that only some strategies need, and return their settings.

        Strategies whose servers do not start are unavailable.
        """
        extras: dict[str, str] = {}
        try:
            extras["REDLOCK_URLS"] = ",".join(self._start_valkey() for _ in range(REDLOCK_SERVERS))
        except NotReady as error:
            self._record_missing_servers("REDLOCK_URLS", error)
        if zookeeper.is_installed():
            self.zookeeper = zookeeper.ZooKeeper(Path(self._folder.name), log=self.log)
            embedded.kill_at_exit(self.zookeeper.start())
            extras["ZOOKEEPER_HOSTS"] = self.zookeeper.hosts
        return extras

    def _wait_for_nodes(self) -> None:
        """Wait until all nodes are ready. Raises NotReady if one ends or does not answer."""
        for number, node in enumerate(self.nodes):
            node.wait_until_ready(self.shop(number))

    def _wait_for_zookeeper(self) -> None:
        """Wait until ZooKeeper, which starts at the same time as the nodes, is ready.

        If ZooKeeper is not ready in time, stop it and record it as missing.
        """
        if self.zookeeper is not None:
            try:
                self.zookeeper.wait_until_ready()
                self.watched_servers.append(self.zookeeper)
            except NotReady as error:
                self.zookeeper.stop()
                self.zookeeper = None
                self._record_missing_servers("ZOOKEEPER_HOSTS", error)

    def _record_missing_servers(self, setting: str, error: NotReady) -> None:
        """Record why the servers of a setting did not start, and write the details to the log."""
        self.log.write(f"{error}\n".encode())
        self.log.flush()
        self.missing[setting] = f"{error.summary}; see run.log"


def _compute_migrations_digest() -> str:
    """Return a digest of the shop's migrations and of Django's version.

    The digest is part of the template database's name, so a template with other tables is not used.
    """
    digest = hashlib.sha256(metadata.version("django").encode())
    for file in sorted((ROOT / "shop" / "migrations").glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
