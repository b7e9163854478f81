"""`split-brain`: two masters, one for each node.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import signal

from loadtest.faults import measure
from loadtest.faults.kinds.failover import FailoverFault
from loadtest.faults.testbed import RIVALS_NODE, VICTIMS_NODE


class SplitBrainFault(FailoverFault):
    """Each node uses a different Redis master, and only that of node A has the victim's lock.

    Before the victim acquires its lock, a proxy begins to drop all replication. While the victim
    has the lock, the replica is promoted, and node B uses it. Node A still uses the old master,
    where renewals and releases succeed. So no holder can notice the fault.
    """

    name = "split-brain"
    title = "two masters: the replica is promoted, and only node B follows"
    has_two_lock_servers = True

    def fire(self) -> None:
        """Promote the replica, and switch node B's proxy to it."""
        self.record_held_locks()
        self.old_master = self.testbed.main_redis
        # SIGKILL, because after a SIGTERM the old master would wait for its replica.
        self.cleanup.callback(self.old_master.stop, signal.SIGKILL)
        self.replica.promote()
        replica_address = self.testbed.get_address(self.replica)
        self.testbed.redis_proxies[RIVALS_NODE].switch(replica_address)
        # heal() switches node A's proxy to the new master, too. Until then the victims can release
        # their locks on the old master.
        self.undo_on_heal.callback(self.testbed.redis_proxies[VICTIMS_NODE].switch, replica_address)
        self.testbed.replace_main_redis(self.replica)

    def prove(self) -> str:
        """Prove that the nodes use two masters, and that node B's has no victim's lock."""
        for node, server in (
            (VICTIMS_NODE, self.old_master),
            (RIVALS_NODE, self.testbed.main_redis),
        ):
            redis_info = measure.run_command(server, "INFO")
            reached_run_id = measure.read_redis_run_id(self.testbed.redis_proxies[node])
            self.require(
                reached_run_id == redis_info["run_id"], "a node does not reach its own Redis"
            )
            role = redis_info["role"]
            self.require(role == "master", f"a node's Redis is a {role}")
        self.require_no_lock_left()
        return (
            "node A and node B have a Redis each, both with the role of master; that of node B has "
            f"none of the victims' {self.held_lock_count} locks"
        )
