"""clock: the contender's clock is ahead."""

from __future__ import annotations

import os
from pathlib import Path

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, TTL, VICTIMS

#: Seconds by which node B is ahead, and how exact the Date of an answer is.
AHEAD = 60.0
EXACT = 3.0

#: A sitecustomize.py: every Python with its folder in PYTHONPATH starts with a wrong clock.
WRONG_CLOCK = f"""\
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {AHEAD!r}
time.time_ns = lambda: _time_ns() + {int(AHEAD * 1e9)!r}
"""


class Clock(Fault):
    """Node B's clock is a minute ahead of node A's: in all of its code, not only in the locks that
    are known to read it. A holder that is ahead would only hold its lock for longer."""

    name = "clock"
    title = f"the contender's clock is {AHEAD:g} s ahead"
    grace = TTL * 0.6  # a lock stolen later than this expired by itself

    def arm(self) -> None:
        folder = Path(self.testbed.folder) / "wrong-clock"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(WRONG_CLOCK)
        known = self.testbed.nodes[RIVALS].environment.get("PYTHONPATH", "")
        path = os.pathsep.join(filter(None, (str(folder), known)))
        self.testbed.restart(RIVALS, PYTHONPATH=path)

    def prove(self) -> str:
        ahead = {
            node: measure.clock_ahead(self.testbed.nodes[node].url) for node in (VICTIMS, RIVALS)
        }
        self.require(abs(ahead[RIVALS] - AHEAD) < EXACT, f"node B is {ahead[RIVALS]:.0f} s ahead")
        self.require(abs(ahead[VICTIMS]) < EXACT, f"node A is {ahead[VICTIMS]:.0f} s ahead")
        return f"the Date of node B's answers is {AHEAD:g} s ahead, that of node A's is not"

    def heal(self) -> None:
        self.testbed.restart(RIVALS)
