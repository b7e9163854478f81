"""The testbed: a stack in which faults can be injected.

A stack is a whole shop on this machine: nodes, which run the shop's code, and their servers. The
nodes of the testbed reach their servers through proxies, and purchases can be stopped at points.
"""

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import closing
from multiprocessing.pool import ThreadPool
from pathlib import Path
from subprocess import Popen
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import psycopg

from loadtest.faults import measure
from loadtest.faults.fault_buyer import FaultBuyer
from loadtest.judge.history import History
from loadtest.stack import mysql_client
from loadtest.stack.client import Shop
from loadtest.stack.databases import get_vendor
from loadtest.stack.stack import NODE_NAMES, Stack
from servers import embedded
from servers.proxy.proxy import Proxy
from servers.waiting import wait_for as wait_for  # the faults import it from this module

T = TypeVar("T")
#: Seconds that a lock survives a holder that does not renew it, the same for every strategy.
TTL_SECONDS = 1.0
#: Settings of both nodes. SHOP_DB_POOL is large because some buyers of every strategy are stopped
#: inside a transaction at the same time. SHOP_LONGEST_UNSETTLED is long because some faults keep
#: the order consumers stopped. SHOP_DEMO_PAUSES is empty because faults stop purchases themselves.
NODE_SETTINGS = {
    "SHOP_LOCK_WAIT": "2",
    "SHOP_REDIS_TIMEOUT": "1",
    "SHOP_DB_POOL": "60",
    "SHOP_DEMO_PAUSES": "",
    "SHOP_LONGEST_UNSETTLED": "60",
}
#: How long a buyer waits for an answer.
ANSWER_TIMEOUT_SECONDS = 10.0
#: The index of node A in `nodes`.
VICTIMS_NODE = 0
#: The index of node B in `nodes`.
RIVALS_NODE = 1


class Testbed(Stack):
    """A stack of two nodes: node A serves the victims, node B their rivals.

    A method that takes a node takes its index in `nodes`: VICTIMS_NODE or RIVALS_NODE.

    redis_proxies    the proxies in front of the main Valkey: first node A's, then node B's
    redlock_proxies  the proxies in front of Redlock's servers
    database_proxy   the proxy of node A in front of the database
    postgres_socket  the path of PostgreSQL's own Unix socket
    proxies          all proxies
    folder           the folder of the run, deleted at its end
    history          the events of buyers and faults; the nodes write their own files next to it
    ttl              seconds after which a lock expires if its holder does not renew it
    answer_timeout   seconds that a buyer waits for an answer
    """

    __test__ = False  # pytest would take the class for a test because of its name

    def __init__(self, *, extras: bool = True, **options: Any) -> None:
        """`extras` and `options` are fields of Stack: log, progress, threads, server, database."""
        self.proxies: list[Proxy] = []
        self.redlock_proxies: list[Proxy] = []
        super().__init__(node_count=2, workers=1, record=True, extras=extras, **options)
        self.folder = Path(self._folder.name)
        for folder in ("at", "go"):  # _point_file() describes them
            (self.records / folder).mkdir()
        self.history = History(self.records / "buyers.jsonl")
        self.ttl = TTL_SECONDS
        self.answer_timeout = ANSWER_TIMEOUT_SECONDS

    # --- servers and nodes ----------------------------------------------------------------------

    @property
    def main_redis(self) -> embedded.Valkey:
        """The Valkey (a server compatible with Redis) that both nodes use."""
        return self.valkeys[0]

    def replace_main_redis(self, replica: embedded.Valkey) -> None:
        """Make a promoted replica the main Redis, which is the first of `valkeys`."""
        self.valkeys.remove(replica)
        self.valkeys[0] = replica
        replica.replica_of = None  # so that a restart does not make it a replica again

    def _start_servers(self) -> dict[str, str]:
        """Start the servers, and proxies in front of them. Return the variables of all nodes."""
        environment = super()._start_servers() | NODE_SETTINGS | self._make_ttl_settings()
        address = self.get_address(self.main_redis)
        self.redis_proxies = [self._start_proxy(address) for _ in (VICTIMS_NODE, RIVALS_NODE)]
        self._start_database_proxy(environment["DATABASE_URL"])
        return environment

    def _start_database_proxy(self, url: str) -> None:
        """Start the proxy in front of MariaDB or PostgreSQL.

        SQLite needs none: it is a file, without connections.
        """
        if self.mariadb is not None:
            self.database_proxy = self._start_proxy(self.mariadb.socket, server_speaks_first=True)
        elif get_vendor(url) == "postgresql":
            with psycopg.connect(url) as connection:
                connection_info = connection.info
                self.postgres_socket = (
                    Path(connection_info.host) / f".s.PGSQL.{connection_info.port}"
                )
            self.database_proxy = self._start_proxy(self.postgres_socket, folder=self.folder)

    def _make_ttl_settings(self) -> dict[str, str]:
        """Return the settings by which a node gives every strategy's locks the ttl `self.ttl`."""
        return dict.fromkeys(("SHOP_LOCK_TTL", "SHOP_TOKEN_TTL"), str(self.ttl))

    def _start_extras(self) -> dict[str, str]:
        """Start the extra servers, and a proxy in front of each of Redlock's servers.

        Return the settings that lead to them. REDLOCK_URLS has the addresses of the proxies.
        """
        extras = super()._start_extras()
        if "REDLOCK_URLS" not in extras:
            return extras
        self.redlock_proxies = [
            self._start_proxy(self.get_address(server)) for server in self.valkeys[1:]
        ]
        urls = ",".join(f"redis://{proxy.address}" for proxy in self.redlock_proxies)
        return extras | {"REDLOCK_URLS": urls}

    def _start_proxy(self, server: Path | tuple[str, int], **options: Any) -> Proxy:
        """Start a proxy in front of a server, and return the proxy.

        server   the path of the server's socket, or its (host, port)
        options  further arguments of Proxy
        """
        proxy = Proxy(server, **options)
        self.proxies.append(proxy)
        proxy.start()
        return proxy

    def _make_node_environment(self, number: int, environment: dict[str, str]) -> dict[str, str]:
        """Return the variables of a node, with URLs that lead to the node's proxies.

        Only node A has a proxy in front of its database.
        """
        node_environment = super()._make_node_environment(number, environment)
        node_environment["REDIS_URL"] = f"redis://{self.redis_proxies[number].address}"
        # `db-kill` recognizes a node's connections to PostgreSQL by this name.
        node_environment["PGAPPNAME"] = f"oversold-{NODE_NAMES[number]}"
        if number == VICTIMS_NODE:
            node_environment["DATABASE_URL"] = self._make_proxied_url(environment["DATABASE_URL"])
        return node_environment

    def _make_proxied_url(self, url: str) -> str:
        """Return the URL of the same database through the proxy; SQLite's URL stays as it is."""
        address, _, query = url.partition("?")
        match get_vendor(url):
            case "postgresql":
                # The proxy's address is the folder of its Unix socket, which libpq takes as a host.
                return f"{address}?host={quote(self.database_proxy.address, safe='')}"
            case "mysql":  # the URL names MariaDB's Unix socket; the proxy has a TCP address
                parameters = dict(parse_qsl(query))
                del parameters["unix_socket"]
                proxy_address = address.replace("localhost", self.database_proxy.address)
                return f"{proxy_address}?{urlencode(parameters)}"
        return url

    def set_ttl(self, seconds: float) -> None:
        """Restart both nodes with this ttl for every strategy, unless they have it already."""
        if seconds != self.ttl:
            self.ttl = seconds
            run_in_parallel((VICTIMS_NODE, RIVALS_NODE), self.restart)

    def shop(self, node: int = 0) -> Shop:
        """Return a client of one node that waits for an answer for `answer_timeout` seconds."""
        shop = super().shop(node)
        shop.timeout = self.answer_timeout
        return shop

    def restart(self, node: int, **settings: str) -> None:
        """Restart a node, with `settings` in addition to its usual settings.

        These settings hold only until the next restart.
        """
        shop_node = self.nodes[node]
        shop_node.stop()
        usual_environment = shop_node.environment
        shop_node.environment = usual_environment | self._make_ttl_settings() | settings
        try:
            shop_node.start()
        finally:
            shop_node.environment = usual_environment
        shop_node.wait_until_ready(self.shop(node))

    def stop(self) -> None:
        super().stop()
        for proxy in self.proxies:
            proxy.stop()

    # --- for faults -----------------------------------------------------------------------------

    @staticmethod
    def get_address(server: embedded.Valkey) -> tuple[str, int]:
        """Return the host and the port of a Valkey."""
        return "127.0.0.1", server.port

    def send_signal(self, node: int, signum: signal.Signals) -> None:
        """Send a signal to every process of a node."""
        for pid in self.list_pids(node):
            os.kill(pid, signum)

    def list_pids(self, node: int) -> list[int]:
        """Return the pids of a node's running processes, gunicorn's master first.

        The processes of the node's order consumer are included, and so are workers whose master has
        ended. Empty when all processes have ended.
        """
        leaders = (self.get_gunicorn_master(node), self.nodes[node].order_consumer.process)
        pids: list[int] = []
        for leader in leaders:
            if leader is not None:
                pids += measure.list_pids_in_session(leader.pid)
        return pids

    def get_gunicorn_master(self, node: int) -> Popen[bytes]:
        """Return a node's gunicorn master."""
        process = self.nodes[node].server.process
        assert process is not None, "the node does not run"
        return process

    def start_order_consumers(self) -> None:
        """Start an order consumer for each node. It writes promised orders to the database."""
        for node in self.nodes:
            node.start_order_consumer()

    def kill_order_consumers(self) -> None:
        """Kill every order consumer. Promised orders then stay in Redis until one is started."""
        for node in self.nodes:
            node.kill_order_consumer()

    def run_sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute a statement directly, bypassing the proxies, and return its rows."""
        if self.mariadb is not None:
            with (
                closing(mysql_client.connect(self.database_url, timeout_seconds=5)) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute(statement)
                return list(cursor.fetchall())
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            return connection.execute(statement).fetchall()

    @staticmethod
    def restart_empty(server: embedded.Valkey) -> None:
        """Kill a Valkey, and start it again on its old port, without its data."""
        server.stop(signal.SIGKILL)
        embedded.kill_at_exit(server.start())

    def repair(self) -> None:
        """Bring all servers back to a known state.

        Both nodes are restarted with their own settings. The main Valkey and Redlock's servers are
        restarted empty, and every other Valkey is stopped. All proxies pass on all bytes again.

        Raises redis.RedisError, OSError or EmbeddedError if a server does not start.
        """
        for node in self.nodes:
            node.kill()  # SIGKILL ends stopped processes too
        # The list begins with the main Valkey and Redlock's servers. The rest are replicas that
        # faults have started.
        permanent_valkey_count = 1 + len(self.redlock_proxies)
        while len(self.valkeys) > permanent_valkey_count:
            self.valkeys.pop().stop(signal.SIGKILL)
        for server in self.valkeys:
            self.restart_empty(server)
        for proxy in self.redis_proxies:
            proxy.switch(self.get_address(self.main_redis))
        for proxy in self.proxies:
            proxy.pass_on()
        self.ttl = TTL_SECONDS
        run_in_parallel((VICTIMS_NODE, RIVALS_NODE), self.restart)

    def record_fault(self, fault: str, event_type: str, phase: str, sentence: str) -> None:
        """Record a phase of a fault.

        event_type  invoke, ok, fail or info
        phase       arm (prepare the fault), fire, prove (show that it happened) or heal
        sentence    what happened, for the timeline in the report
        """
        self.history.record(by="fault", f=fault, type=event_type, phase=phase, what=sentence)

    # --- points where purchases stop ------------------------------------------------------------

    def has_stopped_at(self, buyer: FaultBuyer, point: str = "") -> bool:
        """Return whether a purchase has stopped at `point`, even if it has continued since.

        point  a point of the purchase (shop/sale/points.py), by default the buyer's `stop_at`,
               which must be a single point then
        """
        return self._point_file("at", buyer, point or buyer.stop_at).exists()

    def resume(self, buyer: FaultBuyer, point: str = "") -> None:
        """Let a purchase continue at `point`, by default at all points in the buyer's `stop_at`.

        A purchase that has not reached the point yet will not stop there.

        point  a point of the purchase (shop/sale/points.py)
        """
        points = (point or buyer.stop_at).split(",")
        for passed_point in points:
            self._point_file("go", buyer, passed_point).touch()

    def _point_file(self, folder: str, buyer: FaultBuyer, point: str) -> Path:
        """Return the path of the file that shows that a purchase has stopped, or may continue.

        The node creates the file in the folder `at` when the purchase stops. The testbed creates it
        in the folder `go` to let the purchase continue. demo/hooks.py builds the same path.
        """
        return self.records / folder / f"{buyer.attempt.replace('/', '+')}@{point}"


def run_in_parallel(
    subjects: Iterable[T], action: Callable[[T], object], *, max_threads: int | None = None
) -> None:
    """Call `action` with each subject, in at most `max_threads` threads at the same time.

    Without `max_threads`, every subject has its own thread. When all calls have ended, the error of
    the first failed call is raised, if there was one.
    """
    subject_list = list(subjects)
    # The threads of a ThreadPool are daemons: Ctrl-C does not wait for them.
    with ThreadPool(max_threads or len(subject_list)) as pool:
        pool.map(action, subject_list, chunksize=1)
