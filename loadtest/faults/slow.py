"""slow: the holder works for longer than its ttl, alive."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import TTL, VICTIMS, Stage
from loadtest.faults.trial import Scene, stood


class Slow(Fault):
    """The victim stands at its read, in a process that runs, until its ttl is long over."""

    name = "slow"
    title = "the holder works for longer than the ttl"

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        """Time does it."""

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        states = {psutil.Process(pid).status() for pid in stage.pids(VICTIMS)}
        self.require(psutil.STATUS_STOPPED not in states, "the node is stopped, not slow")
        return f"victims stand at {self.stop}, node A runs"

    def seen(self, scenes: Sequence[Scene]) -> str:
        return f"the victims stood for {stood(scenes)}, with a ttl of {TTL:g} s"

    def part(self, scene: Scene) -> None:
        scene.outlasts(TTL)
        super().part(scene)
