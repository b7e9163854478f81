"""unknown-commit: the order is written, and nobody is told."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, Stage
from loadtest.faults.trial import STOCK, Scene


class UnknownCommit(Fault):
    """PostgreSQL's reply to each victim's COMMIT is dropped. Each asks again with its key, and must
    get the order that it has, not a second unit."""

    name = "unknown-commit"
    title = "the reply to COMMIT is dropped"

    def __init__(self) -> None:
        super().__init__()
        self.cut: dict[str, int] = {}
        self.same: dict[str, int] = {}

    def enter(self, scene: Scene) -> None:
        """Nobody stands anywhere."""

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.stage = stage

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        return "the proxy drops the replies, and counts them"

    def act(self, scene: Scene) -> None:
        """One victim after the other, one for every unit."""
        cut, same = 0, 0
        for number in range(1, STOCK + 1):
            rule = self.stage.postgres.lose_reply(b"COMMIT", after=scene.product.encode())
            victim = scene.send(scene.buyer(f"victim-{number:02}"), VICTIMS)
            victim.join(20)
            cut += rule.wait(0)
            rule.cancel()
            orders = self.stage.shop().orders(scene.sale)
            of_it = [order["order"] for order in orders if order["key"] == victim.attempt]
            same += of_it == [victim.told.order] and victim.first == "unknown"
        self.cut[scene.lock], self.same[scene.lock] = cut, same
        if cut < STOCK:
            scene.missing = f"{cut} of {STOCK} replies were dropped"
        elif same < STOCK:
            scene.broke(f"{same} of {STOCK} victims have their one order")

    def seen(self, scenes: Sequence[Scene]) -> str:
        """What came of all of them."""
        return (
            f"{sum(self.cut.values())} replies to COMMIT were dropped; asked again with the same "
            f"key, {sum(self.same.values())} buyers have the one order that they had"
        )
