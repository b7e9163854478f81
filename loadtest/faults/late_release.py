"""late-release: the holder has sold, and releases its lock after the ttl."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Testbed
from loadtest.faults.trial import Trial, measured_ttl, stopped_for


class LateRelease(Fault):
    """The victim is stopped between its COMMIT and its release until the ttl is over. A first rival
    gets the lock; the victim's late release must not let a second one in beside it."""

    name = "late-release"
    title = "the release comes after the ttl"
    stop = "after_commit"

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """Nothing to do: time passes."""

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        keys = {order["key"] for s in trials for order in testbed.shop().orders(s.sale)}
        for trial in trials:
            assert trial.victim is not None
            if trial.victim.attempt not in keys:
                trial.miss("the victim has not committed")
        return "every victim's order is committed, and its lock not released"

    def observed(self, trials: Sequence[Trial]) -> str:
        return f"the releases came after {stopped_for(trials)}, with {measured_ttl(trials)}"

    def act(self, trial: Trial) -> None:
        trial.rival_enters("rival-1", grace=self.grace)
        trial.outlast_ttl()
        trial.resume_victim(seconds=0.3)  # the first rival's own ttl runs
        trial.rival_enters("rival-2", grace=0.3)
        trial.resume_rivals()
