"""`clock`: the clock of the rivals' node is ahead.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import os

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS_NODE, TTL_SECONDS

#: Seconds by which the clock of node B is ahead.
CLOCK_AHEAD_SECONDS = 60.0
#: Tolerance for the Date header of an answer, which has whole seconds, and for a slow answer.
DATE_TOLERANCE_SECONDS = 3.0
#: The sitecustomize.py of node B, which sets its clock ahead. Python runs a module of this name at
#: its start if the module's folder is in PYTHONPATH.
WRONG_CLOCK = f"""\
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {CLOCK_AHEAD_SECONDS!r}
time.time_ns = lambda: _time_ns() + {int(CLOCK_AHEAD_SECONDS * 1e9)!r}
"""


class ClockFault(Fault):
    """Node B's clock is a minute ahead of node A's.

    time.time() and time.time_ns() return the wrong time to all code of node B, not only to the
    locks that are known to read a clock. So a rival on node B may believe that the victim's lock
    has expired. If the clock of node A were ahead instead, the victim would keep its lock for
    longer.
    """

    name = "clock"
    title = f"the rivals' clock is {CLOCK_AHEAD_SECONDS:g} s ahead"
    # Less than a ttl: later the victim's lock may have expired by the correct clock, too.
    rival_timeout_seconds = TTL_SECONDS * 0.6

    def arm(self) -> None:
        """Restart node B with the wrong clock."""
        folder = self.testbed.folder / "wrong-clock"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(WRONG_CLOCK)
        old_python_path = self.testbed.nodes[RIVALS_NODE].environment.get("PYTHONPATH", "")
        new_python_path = os.pathsep.join(filter(None, (str(folder), old_python_path)))
        self.undo_on_heal.callback(self.testbed.restart, RIVALS_NODE)
        self.testbed.restart(RIVALS_NODE, PYTHONPATH=new_python_path)

    def prove(self) -> str:
        """Prove that the clock of node B is ahead, and that of node A is right."""
        for node, expected_seconds in zip(
            self.testbed.nodes, (0.0, CLOCK_AHEAD_SECONDS), strict=True
        ):
            seconds_ahead = measure.read_clock_lead_seconds(node.url)
            self.require(
                abs(seconds_ahead - expected_seconds) < DATE_TOLERANCE_SECONDS,
                f"the clock of node {node.name} is {seconds_ahead:.0f} s ahead, "
                f"not {expected_seconds:g} s",
            )
        return (
            f"the Date of node B's answers is {CLOCK_AHEAD_SECONDS:g} s ahead, that of node A's "
            "is not"
        )
