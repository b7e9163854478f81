"""clock: the contender's clock is ahead."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, TTL, Testbed
from loadtest.faults.trial import Trial

#: Seconds by which node B is ahead.
AHEAD = 60.0


class Clock(Fault):
    """Node B's clock is a minute ahead of node A's. A holder that is ahead would only hold its lock
    for longer."""

    name = "clock"
    title = f"the contender's clock is {AHEAD:g} s ahead"
    grace = TTL * 0.6  # a lock stolen later than this expired by itself

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        testbed.restart(RIVALS, SHOP_DEMO_CLOCK_AHEAD=str(AHEAD))

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """Node B is ahead already."""

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        for pid in testbed.pids(RIVALS):
            ahead = psutil.Process(pid).environ().get("SHOP_DEMO_CLOCK_AHEAD")
            self.require(ahead == str(AHEAD), "a process of node B is not ahead")
        return f"node B runs {AHEAD:g} s ahead"

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        testbed.restart(RIVALS)
