"""clock: the contender's clock is ahead."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, TTL, Stage
from loadtest.faults.trial import Scene

#: Seconds by which node B is ahead.
AHEAD = 60.0


class Clock(Fault):
    """Node B's clock is a minute ahead of node A's. The other way round a holder that is ahead
    would only hold for longer."""

    name = "clock"
    title = f"the contender's clock is {AHEAD:g} s ahead"
    grace = TTL * 0.6  # a lock that is not stolen by then was not stolen for its clock

    def arm(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        stage.restart(RIVALS, SHOP_DEMO_CLOCK_AHEAD=str(AHEAD))

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        """It is ahead already."""

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        for pid in stage.pids(RIVALS):
            ahead = psutil.Process(pid).environ().get("SHOP_DEMO_CLOCK_AHEAD")
            self.require(ahead == str(AHEAD), f"pid {pid} of node B is not ahead")
        return f"node B runs {AHEAD:g} s ahead"

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        stage.restart(RIVALS)
