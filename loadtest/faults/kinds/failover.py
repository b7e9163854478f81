"""`failover`, `failover@sentinel`: a replica without the lock becomes the master.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import signal

from loadtest.faults import measure
from loadtest.faults.lost_lock import LostLockFault
from loadtest.faults.testbed import RIVALS_NODE, VICTIMS_NODE
from servers import embedded
from servers.proxy.proxy import Proxy
from servers.sentinels import MASTER, Sentinels

#: How long to wait until the Sentinels have promoted the replica.
PROMOTION_TIMEOUT_SECONDS = 20.0


class FailoverFault(LostLockFault):
    """A replica without the victim's lock becomes the master.

    Before the victim acquires its lock, a proxy begins to drop all replication. While the victim
    has the lock, the master is killed, the replica is promoted by a command, and the proxies of
    both nodes are switched to the replica. If no replication were dropped, nothing would be lost:
    on one machine the replica receives each write at once.
    """

    name = "failover"
    title = "the replica is promoted without the lock"
    loses_promised_orders = True

    def arm(self) -> None:
        """Start a replica, and then drop everything that the master sends to it."""
        self._start_replica()
        self.master_proxy.black_hole()

    def _start_replica(self) -> None:
        """Start a replica of the main Redis, and wait until it has caught up.

        The replica reaches the main Redis through a proxy, `master_proxy`.
        """
        master = self.testbed.get_address(self.testbed.main_redis)
        self.master_proxy = self.cleanup.enter_context(Proxy(master))
        host, port = self.master_proxy.address.split(":")
        self.replica = embedded.Valkey(self.testbed.folder, replica_of=(host, int(port)))
        embedded.kill_at_exit(self.replica.start())
        self.testbed.valkeys.append(self.replica)

        def has_synced() -> bool:
            replication = measure.run_command(self.replica, "INFO", "replication")
            return str(replication.get("master_link_status")) == "up"  # set after the first sync

        self.require_soon(has_synced, "the replica does not catch up")

    def fire(self) -> None:
        """Kill the master, promote the replica, and switch the proxies of both nodes to it."""
        self.record_held_locks()
        self.testbed.main_redis.stop(signal.SIGKILL)
        self.replica.promote()
        for proxy in self.testbed.redis_proxies:
            proxy.switch(self.testbed.get_address(self.replica))
        self.testbed.replace_main_redis(self.replica)

    def prove(self) -> str:
        """Prove that both nodes use the promoted replica, and that it has no victim's lock."""
        role = self.run_redis_command("INFO", "replication")["role"]
        self.require(role == "master", f"the replica is still a {role}")
        self.require_no_lock_left()
        self._require_new_master()
        return f"the replica is master and has none of the victims' {self.held_lock_count} locks"

    def _require_new_master(self) -> None:
        """Raise NotFired unless both nodes reach the new master."""
        run_id_of_master = measure.read_redis_run_id(self.testbed.main_redis, timeout=5.0)
        for proxy in self.testbed.redis_proxies:
            self.require(
                measure.read_redis_run_id(proxy) == run_id_of_master,
                "a node was not sent to the new master",
            )


class FailoverSentinelFault(FailoverFault):
    """`failover` with three real Sentinels, which detect the master's end and promote the replica.

    The shop asks the Sentinels for the master. Sentinels and replica reach the master through a
    proxy that drops only replication.
    """

    name = "failover@sentinel"
    title = "three Sentinels promote the replica without the lock"
    rival_timeout_seconds = 1.0  # node B first asks the Sentinels for the new master

    def arm(self) -> None:
        """Start a replica and three Sentinels, and restart both nodes so that they use these.

        Then make the proxy drop everything that the master sends to the replica.
        """
        testbed = self.testbed
        # The nodes use the Sentinels until the sales are judged. Then clean_up() restarts the nodes
        # with their usual settings.
        for node in (VICTIMS_NODE, RIVALS_NODE):
            self.cleanup.callback(testbed.restart, node)
        self._start_replica()
        sentinels = Sentinels(testbed.folder / "sentinels", self.master_proxy.port, testbed.log)
        self.sentinels = sentinels
        self.cleanup.callback(sentinels.stop)
        for pid in sentinels.start():
            embedded.kill_at_exit(pid)
        sentinels.wait_until_ready()
        for node in (VICTIMS_NODE, RIVALS_NODE):
            testbed.restart(node, REDIS_SENTINELS=sentinels.addresses, REDIS_SENTINEL_MASTER=MASTER)
        self.master_proxy.black_hole_replication()

    def fire(self) -> None:
        """Kill the master, and wait until the Sentinels have promoted the replica."""
        self.record_held_locks()
        self.testbed.main_redis.stop(signal.SIGKILL)
        # The Sentinels reach the master through this proxy. The master is dead, so the proxy must
        # refuse connections, as a dead server does.
        self.master_proxy.refuse()
        replica_address = self.testbed.get_address(self.replica)
        message = "the Sentinels do not promote the replica"
        self.require_soon(
            lambda: self.sentinels.find_master() == replica_address,
            message,
            PROMOTION_TIMEOUT_SECONDS,
        )
        self.testbed.replace_main_redis(self.replica)
        # clean_up() restarts the nodes without the Sentinels. From then on the nodes reach Redis
        # through these proxies, which must lead to the new master.
        for proxy in self.testbed.redis_proxies:
            self.cleanup.callback(proxy.switch, replica_address)

    def _require_new_master(self) -> None:
        """Wait until both nodes have reached the new master.

        A node is ready when it has reached a Redis, and the old master is dead.
        """
        for number, node in enumerate(self.testbed.nodes):
            node.wait_until_ready(self.testbed.shop(number))
