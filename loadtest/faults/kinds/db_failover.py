"""`db-failover`, `db-failover@sync`: PostgreSQL is killed and its replica is promoted.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from urllib.parse import urlsplit

from psycopg.conninfo import make_conninfo

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import ANSWER_TIMEOUT_SECONDS, RIVALS_NODE, VICTIMS_NODE, wait_for
from loadtest.faults.trial import Trial
from servers import embedded
from servers.postgres_copy import PostgresCopy
from servers.proxy.proxy import Proxy

#: The name of the replica's folder, and of its connection to the master (application_name).
REPLICA = "replica"
#: The name of each trial's last buyer: the last one to buy before the master is killed. Its order
#: is lost. The key of the order ends with this name.
LAST_BUYER = "late"
#: Connections of node B, because the last buyer of every strategy may occupy one.
NODE_B_POOL_SIZE = "30"


class DbFailoverFault(Fault):
    """The database's server is killed, and a replica that lacks the last orders is promoted.

    Node B is moved to a copy of the database: a master with a replica. A proxy between master and
    replica begins to drop all replication. Then, in each trial, a last buyer buys and is answered.
    The master is killed, and the replica is promoted without the orders of these last buyers. No
    lock and no strategy can detect the loss of the orders. Redis keeps its data.
    """

    name = "db-failover"
    title = "PostgreSQL is killed, its asynchronous replica lags and is promoted"
    victim_stop_point = ""
    #: The outcome of a last buyer's first request.
    expected_outcome = "sold"
    #: The end of the evidence: what was lost. The number of lost orders replaces `{}`.
    lost_orders_template = ", and lacks the {} orders that were acknowledged last"

    def arm(self) -> None:
        """Copy the database to a master with a replica, and move node B to the master."""
        self.database_name = urlsplit(self.testbed.database_url).path.removeprefix("/")
        conninfo_of_original = make_conninfo(host=str(self.testbed.postgres_socket.parent))
        self.master = self._start_copy("master", source=conninfo_of_original)
        self.replication_proxy = self.cleanup.enter_context(Proxy(self.master.socket))
        conninfo_of_proxy = make_conninfo(
            host="127.0.0.1", port=self.replication_proxy.port, application_name=REPLICA
        )
        self.replica = self._start_copy(REPLICA, source=conninfo_of_proxy, as_replica=True)
        self.replica.wait_until_caught_up_with(self.master)
        self.node_b_proxy = self.cleanup.enter_context(Proxy(self.master.socket))
        url = f"postgresql://postgres@{self.node_b_proxy.address}/{self.database_name}"
        self.cleanup.callback(self.testbed.restart, RIVALS_NODE)
        self.testbed.restart(RIVALS_NODE, DATABASE_URL=url, SHOP_DB_POOL=NODE_B_POOL_SIZE)
        # Node A still uses the original database. Its order consumer would write promised orders
        # there, and not to the copy from which the sales are judged.
        self.testbed.nodes[VICTIMS_NODE].kill_order_consumer()

    def _start_copy(self, name: str, *, source: str, as_replica: bool = False) -> PostgresCopy:
        """Start a copy of a PostgreSQL, and return it.

        source      the connection string of the PostgreSQL that is copied
        as_replica  whether the copy goes on replicating from that PostgreSQL
        """
        # Each fault has its own folder: an earlier fault may have left copies with the same names.
        folder = self.testbed.folder / self.unique_id
        folder.mkdir(exist_ok=True)
        server = PostgresCopy(
            folder / name, runtime_folder=folder, source=source, as_replica=as_replica
        )
        self.cleanup.callback(server.stop)
        server.start()
        embedded.kill_at_exit(server.pid)
        return server

    def fire(self) -> None:
        """Let a last buyer of each trial buy, kill the master, and promote the lagging replica.

        The replica does not get the orders of these last buyers, so the failover loses them.
        """
        self.replica.wait_until_caught_up_with(self.master)
        self.replication_proxy.black_hole()
        for trial in self.trials:
            trial.start_buyer(trial.add_buyer(LAST_BUYER))
        message = "not every last buyer's COMMIT has reached the master"
        self.require_soon(
            lambda: self._count_orders_about_to_be_lost() >= len(self.trials), message
        )
        self.dropped_bytes = self.replication_proxy.dropped_bytes
        self.master.kill()
        self.replica.promote()
        # Count before node B uses the replica. After that, node B's order consumer writes promised
        # orders to the replica, too.
        self.last_orders_on_replica = self._count_last_orders(self.replica)
        self.node_b_proxy.switch(self.replica.socket)

    def _count_orders_about_to_be_lost(self) -> int:
        """Return how many last buyers were answered `sold` and have their order on the master.

        Their orders are lost when the master is killed. Both conditions are needed, because a
        promised order (accepted in Redis) is committed only after the answer.
        """
        last_buyers = [trial.buyers[-1] for trial in self.trials]
        answered_count = sum(buyer.first_outcome == "sold" for buyer in last_buyers)
        return min(answered_count, self._count_last_orders(self.master))

    def _count_last_orders(self, server: PostgresCopy) -> int:
        """Return how many orders a server has of the last buyers before the master was killed."""
        statement = (
            "SELECT count(*) FROM purchase_history "
            f"WHERE idempotency_key LIKE '{self.unique_id}/%/{LAST_BUYER}'"
        )
        return int(server.run_sql(statement, self.database_name)[0][0])

    def prove(self) -> str:
        """Prove that the replica was promoted without the orders of the last buyers.

        A last buyer is the last one of its trial to buy before the master was killed.
        """
        count = len(self.trials)
        self.require(self.dropped_bytes, "the proxy dropped no byte of replication")
        is_in_recovery = self.replica.run_sql("SELECT pg_is_in_recovery()")[0][0]
        self.require(not is_in_recovery, "the replica was not promoted")
        self.require(
            not self.last_orders_on_replica,
            f"the replica has {self.last_orders_on_replica} of the {count} last orders",
        )
        lost_orders_clause = self.lost_orders_template.format(count)
        return (
            f"{self.dropped_bytes} bytes of replication never arrived; the replica is no longer in "
            f"recovery{lost_orders_clause}"
        )

    def run_buyers(self, trial: Trial) -> None:
        """Wait for the first outcome of the last buyer, whose order is lost, and check it.

        No buyer has to be resumed, because no purchase is stopped under this fault.
        """
        last_buyer = trial.buyers[-1]
        wait_for(lambda: last_buyer.first_outcome, ANSWER_TIMEOUT_SECONDS)
        expected_outcomes = {self.expected_outcome}
        if trial.strategy["deferred"]:
            # The buyer is answered when its order is promised, before the order is committed.
            expected_outcomes.add("sold")
        if last_buyer.first_outcome not in expected_outcomes:
            trial.mark_inconclusive(f"the last buyer was answered {last_buyer.first_outcome}")


class DbFailoverSyncFault(DbFailoverFault):
    """`db-failover` with a synchronous replica: a commit ends only when the replica has it.

    The proxy drops the replication, so the commits of the last buyers do not end. When the master
    is killed, these buyers get no answer, and send their requests again with the same keys.
    """

    name = "db-failover@sync"
    title = "the same, and the replica is synchronous"
    expected_outcome = "unknown"
    lost_orders_template = "; {} commits waited for the replica when the master was killed"

    def arm(self) -> None:
        """Copy the database as `db-failover` does, and make the replica synchronous."""
        super().arm()
        self.master.run_sql(f"ALTER SYSTEM SET synchronous_standby_names = '{REPLICA}'")
        self.master.run_sql("SELECT pg_reload_conf()")
        sync_state_sql = "SELECT sync_state FROM pg_stat_replication"
        message = "the replica is not synchronous"
        self.require_soon(lambda: self.master.run_sql(sync_state_sql) == [("sync",)], message)

    def _count_orders_about_to_be_lost(self) -> int:
        """Return the number of commits on the master that wait for the replica's confirmation.

        These are the commits of the last buyers. The replica never gets them, so they are lost when
        the master is killed.
        """
        statement = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        return int(self.master.run_sql(statement)[0][0])
