"""`late-release`: the holder releases its lock after the ttl.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial

#: How long to wait for the victim's answer, and then for the second rival. It is short, because the
#: first rival's lock must not expire meanwhile.
SHORT_TIMEOUT_SECONDS = 0.3


class LateReleaseFault(Fault):
    """The victim is stopped between its COMMIT and its release until the ttl is over.

    A first rival waits for the lock, and gets it when the victim's ttl is over. Then the victim
    calls its release. This must not delete the first rival's lock, so a second rival must not get
    the lock.
    """

    name = "late-release"
    title = "the release comes after the ttl"
    victim_stop_point = "after_commit"

    def prove(self) -> str:
        """Prove that each victim has committed its order.

        The victims are stopped before they release their locks. A trial whose victim has not
        committed is inconclusive.
        """
        shop = self.testbed.shop()
        for trial in self.trials:
            if trial.victim.attempt not in {order["key"] for order in shop.orders(trial.sale)}:
                trial.mark_inconclusive("the victim's order is not in the database")
        return "every victim's order is committed, and its lock not released"

    def run_buyers(self, trial: Trial) -> None:
        """Resume the victim while the first rival has the lock, then start the second rival.

        Each rival stops when it has the lock and has read the stock. If the lock is sound, the
        second rival does not get it, and the wait ends after SHORT_TIMEOUT_SECONDS.
        """
        trial.start_rival("rival-1", timeout_seconds=self.rival_timeout_seconds)
        trial.wait_until_ttl_is_over()
        trial.resume_victim(timeout_seconds=SHORT_TIMEOUT_SECONDS)
        trial.start_rival("rival-2", timeout_seconds=SHORT_TIMEOUT_SECONDS)
        trial.resume_rivals()
