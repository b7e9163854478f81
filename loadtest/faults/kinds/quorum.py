"""`quorum`: two of Redlock's five servers are cut off, then three.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial


class QuorumFault(Fault):
    """The shop must sell while two of Redlock's five servers are cut off, and refuse if three are.

    The fault `restart` covers the case that a server comes back without its data.
    """

    name = "quorum"
    title = "2 of 5 servers are cut off, then 3"
    victim_stop_point = ""  # no victim; start_first_buyers() only lets a first buyer buy

    def fire(self) -> None:
        """Cut two of Redlock's five servers off."""
        for proxy in self.testbed.redlock_proxies:
            self.undo_on_heal.callback(proxy.pass_on)
        for proxy in self.testbed.redlock_proxies[3:]:
            proxy.black_hole()

    def prove(self) -> str:
        """Prove that two servers do not answer. run_buyers() cuts a third one off and checks it."""
        self._require_answering_servers(3)
        return "2 of 5 servers do not answer, then 3"

    def run_buyers(self, trial: Trial) -> None:
        """Check that buyers can buy. Cut a third server off, and check that buyers are refused.

        There is only one trial, because Redlock is the only strategy under this fault.
        """
        for number in (1, 2, 3):
            buyer = f"two-cut-off-{number}"
            self.expect_outcome(trial, buyer, "sold")
        self.testbed.redlock_proxies[2].black_hole()
        for number in (1, 2, 3):
            buyer = f"three-cut-off-{number}"
            self.expect_outcome(trial, buyer, "unavailable")
        self._require_answering_servers(2)

    def _require_answering_servers(self, expected_count: int) -> None:
        """Raise NotFired unless this number of Redlock's servers answer."""
        count = sum(
            bool(measure.read_redis_run_id(proxy)) for proxy in self.testbed.redlock_proxies
        )
        self.require(count == expected_count, f"{count} of 5 servers answer, not {expected_count}")
