"""slow: the holder works for longer than its ttl, alive."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, Testbed
from loadtest.faults.trial import Trial, measured_ttl, stopped_for


class Slow(Fault):
    """The victim is stopped after its read, in a process that runs, until its ttl is long over."""

    name = "slow"
    title = "the holder works for longer than the ttl"

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """Nothing to do: time passes."""

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        states = measure.states_of(testbed.pids(VICTIMS)).values()
        self.require(psutil.STATUS_STOPPED not in states, "the node is stopped, not slow")
        return f"the victims are stopped at {self.stop}, node A runs"

    def observed(self, trials: Sequence[Trial]) -> str:
        return f"the victims were stopped for {stopped_for(trials)}, with {measured_ttl(trials)}"

    def resume(self, trial: Trial) -> None:
        trial.outlast_ttl()
        super().resume(trial)
