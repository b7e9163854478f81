"""quorum: Redlock with two of its five servers gone, and with three."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Stage
from loadtest.faults.trial import Scene


class Quorum(Fault):
    """Two of five servers cut off: the shop sells on. Three: it refuses. That one which comes back
    empty gives two holders is seen under `restart`."""

    name = "quorum"
    title = "2 of 5 servers are cut off, then 3"

    def enter(self, scene: Scene) -> None:
        """Nobody is inside."""

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.stage = stage
        for way in stage.redlock[3:]:
            way.black_hole()

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        answering = sum(stage.answers(way) for way in stage.redlock)
        self.require(answering == 3, f"{answering} of 5 servers answer")
        return "2 of 5 servers do not answer; then a third"

    def act(self, scene: Scene) -> None:
        self._ask(scene, "two-gone", "sold", 3)
        self.stage.redlock[2].black_hole()
        self.require(sum(map(self.stage.answers, self.stage.redlock)) == 2, "a third answers still")
        self._ask(scene, "three-gone", "unavailable", 3)

    def _ask(self, scene: Scene, name: str, wanted: str, times: int) -> None:
        for number in range(1, times + 1):
            told = scene.ask_once(f"{name}-{number}")
            if told != wanted:
                scene.broke(f"{name}-{number} was told {told}, not {wanted}")

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        for way in stage.redlock:
            way.pass_on()
