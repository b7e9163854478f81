"""slow: the holder works for longer than its ttl, alive."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import TTL, VICTIMS, Testbed
from loadtest.faults.trial import Trial, stopped_for


class Slow(Fault):
    """The victim is stopped after its read, in a process that runs, until its ttl is long over."""

    name = "slow"
    title = "the holder works for longer than the ttl"

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """Nothing to do: time passes."""

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        states = {psutil.Process(pid).status() for pid in testbed.pids(VICTIMS)}
        self.require(psutil.STATUS_STOPPED not in states, "the node is stopped, not slow")
        return f"the victims are stopped at {self.stop}, node A runs"

    def observed(self, trials: Sequence[Trial]) -> str:
        return f"the victims were stopped for {stopped_for(trials)}, with a ttl of {TTL:g} s"

    def resume(self, trial: Trial) -> None:
        trial.require_stop_of(TTL)
        super().resume(trial)
