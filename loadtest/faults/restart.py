"""restart: Redis is killed and comes back without its data while a holder is inside."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.scene import Scene
from loadtest.faults.stage import Stage


class Restart(Fault):
    """SIGKILL of Valkey and a start with an empty memory, on the same port.

    Of Redlock's five servers 4 and 5 are cut off while its victim takes 1, 2 and 3; then 3 restarts
    empty and 4 and 5 come back: 3, 4 and 5 are a majority for the rival.
    """

    name = "restart"
    title = "Redis restarts empty while a holder is inside"
    grace = 0.7

    def arm(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        for way in stage.redlock[3:]:
            way.refuse()

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.before = self._run_id(stage)
        self.held = [scene.lock for scene in scenes if scene.orphans()]
        stage.restart_empty()
        third = stage.valkeys[3]
        third.stop()
        stage.start_again(third)
        for way in stage.redlock[3:]:
            way.pass_on()

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        self.require(self._run_id(stage) != self.before, "it is the same Redis as before")
        left = [scene.lock for scene in scenes if scene.orphans()]
        self.require(not left, f"locks survived: {left}")
        return f"another run_id, and no key of the {len(self.held)} locks held there before"

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        for way in stage.redlock:
            way.pass_on()

    @staticmethod
    def _run_id(stage: Stage) -> str:
        return str(stage.ask(stage.main, "INFO", "server")["run_id"])
