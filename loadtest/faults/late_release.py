"""late-release: the holder has sold, and is late in giving its lock back."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import TTL, Stage
from loadtest.faults.trial import Scene, stood


class LateRelease(Fault):
    """The victim stands between its COMMIT and its release past the ttl. A first rival comes in;
    the victim's late release must not let a second one in beside it."""

    name = "late-release"
    title = "the release comes after the ttl"
    stop = "after_commit"

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        """Time does it."""

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        keys = {order["key"] for s in scenes for order in stage.shop().orders(s.sale)}
        for scene in scenes:
            assert scene.victim is not None
            if scene.victim.attempt not in keys:
                scene.missing = scene.missing or "the victim has not committed"
        return "every victim's order is committed, and its lock not released"

    def seen(self, scenes: Sequence[Scene]) -> str:
        return f"the releases came after {stood(scenes)}, with a ttl of {TTL:g} s"

    def act(self, scene: Scene) -> None:
        scene.rival_enters("rival-1", grace=self.grace)
        scene.outlasts(TTL)
        scene.victim_leaves(seconds=0.3)  # the first rival's own ttl runs
        scene.rival_enters("rival-2", grace=0.3)
        scene.rivals_leave()
