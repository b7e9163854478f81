"""`restart`: Redis restarts empty while a buyer holds the lock.

Node A serves the victims, node B their rivals; fault.py explains these words and the steps.
"""

from loadtest.faults import measure
from loadtest.faults.lost_lock import LostLockFault
from servers import embedded


class RestartFault(LostLockFault):
    """Valkey is killed, and restarts without its data on the same port.

    Of Redlock's five servers, 4 and 5 are cut off while the victim acquires 1, 2 and 3. Then 3
    restarts empty, and 4 and 5 are reachable again: 3, 4 and 5 are a majority for the rival.
    """

    name = "restart"
    title = "Redis restarts empty while a holder is inside"
    loses_accepted_orders = True

    def arm(self) -> None:
        """Cut Redlock's servers 4 and 5 off, so that the victim gets its lock on 1, 2 and 3."""
        for proxy in self.testbed.redlock_proxies[3:]:
            self.healing.callback(proxy.pass_on)
            proxy.refuse()

    def fire(self) -> None:
        self.run_ids_before = self._read_run_ids()
        self.record_held_locks()
        for server in self._list_servers():
            self.testbed.restart_empty(server)
        self.healing.close()  # makes Redlock's servers 4 and 5, cut off by arm(), reachable

    def prove(self) -> str:
        unchanged_run_ids = self.run_ids_before & self._read_run_ids()
        self.require(not unchanged_run_ids, "Redis, or Redlock's third server, did not restart")
        self.require_no_lock_left()
        return f"new run_ids, and no key of the {self.held_lock_count} locks held before"

    def _list_servers(self) -> list[embedded.Valkey]:
        """Return the main Redis, and Redlock's third server if the testbed has one."""
        # `valkeys` begins with the main Redis, so index 3 is Redlock's third server. The slice is
        # empty if the testbed does not run Redlock's servers.
        return [self.testbed.main_redis] + self.testbed.valkeys[3:4]

    def _read_run_ids(self) -> set[str]:
        """Return the run_ids of the servers that fire() restarts; a restart changes them."""
        return {measure.redis_run_id(server, timeout=5.0) for server in self._list_servers()}
