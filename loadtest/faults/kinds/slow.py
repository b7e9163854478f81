"""`slow`: the holder works for longer than the ttl.

Node A serves the victims, node B their rivals; fault.py explains these words and the steps.
"""

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial


class SlowFault(Fault):
    """The victim is stopped after its read, in a running process, until its lock's ttl is over."""

    name = "slow"
    title = "the holder works for longer than the ttl"

    def prove(self) -> str:
        states = map(measure.read_process_state, self.testbed.pids(self.node))
        self.require(psutil.STATUS_STOPPED not in states, "the node is stopped, not slow")
        return f"the victims are stopped at {self.point}, node A runs"

    def resume(self, trial: Trial) -> None:
        """Resume the buyers after the victim's lock has expired."""
        trial.wait_until_ttl_is_over()
        super().resume(trial)
