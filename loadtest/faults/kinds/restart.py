"""`restart`: Redis restarts empty while a buyer holds the lock.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from loadtest.faults import measure
from loadtest.faults.lost_lock import LostLockFault
from servers import embedded


class RestartFault(LostLockFault):
    """Valkey is killed, and restarts without its data on the same port.

    Of Redlock's five servers, 4 and 5 are cut off while the victim acquires its lock on 1, 2 and 3.
    Then server 3 restarts without its data, and 4 and 5 are reachable again. Now the rival can
    acquire the lock on 3, 4 and 5. So both have the lock on three of five servers, a majority.
    """

    name = "restart"
    title = "Redis restarts empty while a holder is inside"
    loses_promised_orders = True

    def arm(self) -> None:
        """Cut Redlock's servers 4 and 5 off, so that the victim gets its lock on 1, 2 and 3."""
        for proxy in self.testbed.redlock_proxies[3:]:
            self.undo_on_heal.callback(proxy.pass_on)
            proxy.refuse()

    def fire(self) -> None:
        """Restart the servers without their data, and make Redlock's other servers reachable."""
        self.run_ids_before = self._read_run_ids()
        self.record_held_locks()
        for server in self._list_servers():
            self.testbed.restart_empty(server)
        self.undo_on_heal.close()  # undoes arm(): Redlock's servers 4 and 5 are reachable again

    def prove(self) -> str:
        """Prove that each server has restarted, and that no victim's lock is left."""
        unchanged_run_ids = self.run_ids_before & self._read_run_ids()
        self.require(not unchanged_run_ids, "Redis, or Redlock's third server, did not restart")
        self.require_no_lock_left()
        return (
            "the run_ids of the servers are new, and none of the victims' "
            f"{self.held_lock_count} locks is left"
        )

    def _list_servers(self) -> list[embedded.Valkey]:
        """Return the main Redis, and Redlock's third server if the testbed has one."""
        # `valkeys` begins with the main Redis, so index 3 is Redlock's third server. The slice is
        # empty if the testbed does not run Redlock's servers.
        return [self.testbed.main_redis] + self.testbed.valkeys[3:4]

    def _read_run_ids(self) -> set[str]:
        """Return the run_ids of the servers that fire() restarts. A restart changes the run_id."""
        return {measure.read_redis_run_id(server, timeout=5.0) for server in self._list_servers()}
