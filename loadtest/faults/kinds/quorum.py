"""`quorum`: two of Redlock's five servers are cut off, then three.

Node A serves the victims, node B their rivals; fault.py explains these words and the steps.
"""

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial


class QuorumFault(Fault):
    """The shop sells while two of Redlock's five servers are cut off, and refuses if three are.

    What happens if a server comes back empty is shown by the fault `restart`.
    """

    name = "quorum"
    title = "2 of 5 servers are cut off, then 3"
    point = ""

    def fire(self) -> None:
        """Cut two of Redlock's five servers off."""
        for proxy in self.testbed.redlock_proxies:
            self.healing.callback(proxy.pass_on)
        for proxy in self.testbed.redlock_proxies[3:]:
            proxy.black_hole()

    def prove(self) -> str:
        self._require_answering_servers(3)
        return "2 of 5 servers do not answer, then 3"  # run_buyers() proves the second part

    def run_buyers(self, trial: Trial) -> None:
        """Check that buyers are served. Cut a third server off, and check that buyers are refused.

        This runs for one trial only, because Redlock is the only strategy under this fault.
        """
        for number in (1, 2, 3):
            buyer = f"two-gone-{number}"
            self.expect_outcome(trial, buyer, "sold")
        self.testbed.redlock_proxies[2].black_hole()
        for number in (1, 2, 3):
            buyer = f"three-gone-{number}"
            self.expect_outcome(trial, buyer, "unavailable")
        self._require_answering_servers(2)

    def _require_answering_servers(self, expected_count: int) -> None:
        """Raise NotFired unless this number of Redlock's servers answer."""
        count = sum(bool(measure.redis_run_id(proxy)) for proxy in self.testbed.redlock_proxies)
        self.require(count == expected_count, f"{count} of 5 servers answer, not {expected_count}")
