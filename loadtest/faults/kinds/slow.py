"""`slow`: the holder works for longer than the ttl.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial


class SlowFault(Fault):
    """The victim is stopped after its read until its lock has expired. Its process still runs."""

    name = "slow"
    title = "the holder works for longer than the ttl"

    def prove(self) -> str:
        """Prove that the processes of the node run, so that only the victims are slow."""
        states = map(measure.read_process_state, self.testbed.list_pids(self.node))
        self.require(psutil.STATUS_STOPPED not in states, "the node is stopped, not slow")
        return f"the victims are stopped at {self.victim_stop_point}, node A runs"

    def resume(self, trial: Trial) -> None:
        """Resume the buyers after the victim's lock has expired."""
        trial.wait_until_ttl_is_over()
        super().resume(trial)
