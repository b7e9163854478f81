"""`late-release`: the holder releases its lock after the ttl.

Node A serves the victims, node B their rivals; fault.py explains these words and the steps.
"""

from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial


class LateReleaseFault(Fault):
    """The victim is stopped between its COMMIT and its release until the ttl is over.

    A first rival waits for the lock, and gets it when the victim's ttl is over. When the victim
    then releases, a second rival must not get the lock as well.
    """

    name = "late-release"
    title = "the release comes after the ttl"
    point = "after_commit"

    def prove(self) -> str:
        """Prove that each victim has committed its order.

        The victims are stopped before they release their locks. A trial whose victim has not
        committed is inconclusive.
        """
        shop = self.testbed.shop()
        for trial in self.trials:
            if trial.victim.attempt not in {order["key"] for order in shop.orders(trial.sale)}:
                trial.mark_inconclusive("the victim has not committed")
        return "every victim's order is committed, and its lock not released"

    def run_buyers(self, trial: Trial) -> None:
        """Resume the victim while the first rival has the lock, then send the second rival.

        Each rival stops once it has the lock. Under a sound lock the second rival does not get it,
        and `timeout_seconds` ends the wait.
        """
        trial.send_rival("rival-1", timeout_seconds=self.rival_timeout_seconds)
        trial.wait_until_ttl_is_over()
        # These timeouts are short: all must happen before the first rival's lock expires.
        trial.resume_victim(timeout_seconds=0.3)
        trial.send_rival("rival-2", timeout_seconds=0.3)
        trial.resume_rivals()
