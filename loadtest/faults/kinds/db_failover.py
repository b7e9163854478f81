"""`db-failover`, `db-failover@sync`: PostgreSQL is killed and its replica is promoted."""

from urllib.parse import urlsplit

from psycopg.conninfo import make_conninfo

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS_NODE, VICTIMS_NODE, wait_for
from loadtest.faults.trial import Trial
from servers import embedded
from servers.postgres_copy import PostgresCopy
from servers.proxy.proxy import Proxy

REPLICA = "replica"
#: Connections of node B: the last buyer of every strategy may wait in one.
NODE_B_POOL_SIZE = "30"


class DbFailoverFault(Fault):
    """Node B moves to a copy of the database that has a replica. Replication becomes a black
    hole, one more buyer buys and is answered, the server is killed and the replica promoted. An
    asynchronous replica lacks these orders, and no lock and no database strategy can know that.
    Redis keeps its data.
    """

    name = "db-failover"
    title = "PostgreSQL is killed, its asynchronous replica lags and is promoted"
    point = ""
    #: What a last buyer is answered first, and what the last orders show.
    expected_answer = "sold"
    observation = ", and lacks the {} orders that were acknowledged last"

    def arm(self) -> None:
        self.database = urlsplit(self.testbed.database_url).path.removeprefix("/")
        source = make_conninfo(host=str(self.testbed.postgres_socket.parent))
        self.master = self._start_copy("first", of=source)
        self.replication_proxy = self.cleanup.enter_context(Proxy(self.master.socket))
        port = self.replication_proxy.port
        of = make_conninfo(host="127.0.0.1", port=port, application_name=REPLICA)
        self.replica = self._start_copy("second", of=of, follows=True)
        self.replica.catch_up_with(self.master)
        self.node_b_proxy = self.cleanup.enter_context(Proxy(self.master.socket))
        url = f"postgresql://postgres@{self.node_b_proxy.address}/{self.database}"
        self.cleanup.callback(self.testbed.restart, RIVALS_NODE)
        self.testbed.restart(RIVALS_NODE, DATABASE_URL=url, SHOP_DB_POOL=NODE_B_POOL_SIZE)
        self.testbed.nodes[VICTIMS_NODE].stop_settling()  # it would settle into the old database

    def _start_copy(self, name: str, *, of: str, follows: bool = False) -> PostgresCopy:
        # The copy of an earlier fault has another folder, or it would be started again.
        folder = self.testbed.folder / self.unique_id
        folder.mkdir(exist_ok=True)
        server = PostgresCopy(folder / name, runtime=folder, of=of, follows=follows)
        self.cleanup.callback(server.stop)
        server.start()
        embedded.adopt(server.pid)
        return server

    def fire(self) -> None:
        """Everybody's last buyer comes, whose order does not reach the replica."""
        self.replica.catch_up_with(self.master)
        self.replication_proxy.black_hole()
        for trial in self.trials:
            trial.send(trial.add_buyer("late"))
        behind = "not every last buyer got so far"
        self.require_soon(lambda: self._count_last_buyers() >= len(self.trials), behind)
        self.dropped_bytes = self.replication_proxy.dropped
        self.master.kill()
        self.replica.promote()
        self.late_orders_on_replica = self._count_late_orders(
            self.replica
        )  # before a consumer writes what it could not
        self.node_b_proxy.switch(self.replica.socket)

    def _count_last_buyers(self) -> int:
        """Return how many of the last buyers were answered and have their order.

        A promised order is written a moment after the answer.
        """
        sold = sum(trial.buyers[-1].first_outcome == "sold" for trial in self.trials)
        return min(sold, self._count_late_orders(self.master))

    def _count_late_orders(self, server: PostgresCopy) -> int:
        """Return how many of the last orders a server has."""
        late = f"FROM purchase_history WHERE idempotency_key LIKE '{self.unique_id}/%/late'"
        return int(server.sql(f"SELECT count(*) {late}", self.database)[0][0])

    def prove(self) -> str:
        count = len(self.trials)
        self.require(self.dropped_bytes, "replication lost nothing")
        recovers = self.replica.sql("SELECT pg_is_in_recovery()")[0][0]
        self.require(not recovers, "the replica was not promoted")
        self.require(
            not self.late_orders_on_replica,
            f"the replica has {self.late_orders_on_replica} of the {count} last orders",
        )
        return (
            f"{self.dropped_bytes} bytes of replication never arrived; the replica is no longer in "
            f"recovery{self.observation.format(count)}"
        )

    def act(self, trial: Trial) -> None:
        """No buyer of this fault is stopped; the last ones have been answered, or cut off."""
        late = trial.buyers[-1]
        wait_for(lambda: late.first_outcome, 10)
        if late.first_outcome != self.expected_answer and not (
            late.first_outcome == "sold" and trial.strategy["deferred"]
        ):
            trial.mark_inconclusive(f"the last buyer was answered {late.first_outcome}")


class DbFailoverSyncFault(DbFailoverFault):
    """The same with synchronous_standby_names: a commit is acknowledged when the replica has it.
    The last buyers wait for that, are cut off, and ask again with their keys."""

    name = "db-failover@sync"
    title = "the same, and the replica is synchronous"
    expected_answer = "unknown"
    observation = "; {} commits waited for it when the server was killed"

    def arm(self) -> None:
        super().arm()
        self.master.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{REPLICA}'")
        self.master.sql("SELECT pg_reload_conf()")
        state = "SELECT sync_state FROM pg_stat_replication"
        self.require_soon(lambda: self.master.sql(state) == [("sync",)], "it is asynchronous")

    def _count_last_buyers(self) -> int:
        """Return how many commits wait for the replica."""
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        return int(self.master.sql(waits)[0][0])
