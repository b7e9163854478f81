"""slow, late-release: the holder lives, and is done with its work, or its lock, after the ttl."""

from __future__ import annotations

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial


class Slow(Fault):
    """The victim is stopped after its read, in a process that runs, until its ttl is long over."""

    name = "slow"
    title = "the holder works for longer than the ttl"

    def prove(self) -> str:
        states = measure.states_of(self.testbed.pids(self.node)).values()
        self.require(psutil.STATUS_STOPPED not in states, "the node is stopped, not slow")
        return f"the victims are stopped at {self.stop}, node A runs"

    def observed(self) -> str:
        return f"the victims were stopped for {self.stopped_for()}, with {self.measured_ttl()}"

    def resume(self, trial: Trial) -> None:
        trial.outlast_ttl()
        super().resume(trial)


class LateRelease(Fault):
    """The victim is stopped between its COMMIT and its release until the ttl is over. A first rival
    gets the lock; the victim's late release must not let a second one in beside it."""

    name = "late-release"
    title = "the release comes after the ttl"
    stop = "after_commit"

    def prove(self) -> str:
        shop = self.testbed.shop()
        for trial in self.trials:
            assert trial.victim is not None
            if trial.victim.attempt not in {order["key"] for order in shop.orders(trial.sale)}:
                trial.miss("the victim has not committed")
        return "every victim's order is committed, and its lock not released"

    def observed(self) -> str:
        return f"the releases came after {self.stopped_for()}, with {self.measured_ttl()}"

    def act(self, trial: Trial) -> None:
        trial.rival_enters("rival-1", grace=self.grace)
        trial.outlast_ttl()
        trial.resume_victim(seconds=0.3)  # the first rival's own ttl runs
        trial.rival_enters("rival-2", grace=0.3)
        trial.resume_rivals()
