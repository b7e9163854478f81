"""lost-reply: Redis does what it was asked, and its answer never arrives."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, Stage
from loadtest.faults.trial import Scene
from servers.proxy.proxy import LostReply


class LostReplies(Fault):
    """The reply to the victim's first command that names its product is cut off: the one that takes
    the lock. The victim asks again with the same key."""

    name = "lost-reply"
    title = "the reply that says that the lock is ours is cut off"

    def arm(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.rules: dict[str, LostReply] = {}
        for scene in scenes:
            way = (
                stage.redlock[0] if scene.strategy["backend"] == "redlock" else stage.redis[VICTIMS]
            )
            # The keys of a reservation are of the sale, its arguments name the attempt.
            names = f"{scene.attempts}/victim" if scene.strategy["reserves"] else scene.product
            self.rules[scene.lock] = way.lose_reply(names.encode())

    def enter(self, scene: Scene) -> None:
        scene.victim = scene.send(scene.buyer("victim"), VICTIMS)

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        """The victims do, by asking."""

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        for scene in scenes:
            self.require(self.rules[scene.lock].wait(10), f"{scene.lock}: no reply was cut")
        return f"{len(self.rules)} replies were cut"

    def act(self, scene: Scene) -> None:
        """The victim is asking again."""

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        for rule in self.rules.values():
            rule.cancel()
