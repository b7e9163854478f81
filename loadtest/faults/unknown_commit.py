"""unknown-commit: the order is committed, and the node does not know."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, Testbed
from loadtest.faults.trial import STOCK, Trial


class UnknownCommit(Fault):
    """The proxy drops PostgreSQL's reply to each victim's COMMIT. Each victim asks again with its
    key, and must get the order that it has, not a second unit."""

    name = "unknown-commit"
    title = "the reply to COMMIT is dropped"

    def __init__(self) -> None:
        super().__init__()
        self.cut: dict[str, int] = {}
        self.same: dict[str, int] = {}

    def enter(self, trial: Trial) -> None:
        """No victim stops anywhere."""

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """Each victim sets its own rule in act."""

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        return "the proxy drops the replies, and counts them"

    def act(self, trial: Trial) -> None:
        """One victim for every unit, one after the other."""
        cut, same = 0, 0
        for number in range(1, STOCK + 1):
            victim = trial.buyer(f"victim-{number:02}")
            # Its key is in its own transaction alone; a product's name is also looked up elsewhere.
            rule = trial.testbed.postgres.lose_reply(b"COMMIT", after=victim.attempt.encode())
            trial.send(victim, VICTIMS).join(20)
            cut += rule.wait(0)
            rule.cancel()
            orders = trial.testbed.shop().orders(trial.sale)
            of_it = [order["order"] for order in orders if order["key"] == victim.attempt]
            same += of_it == [victim.reply.order] and victim.first == "unknown"
        self.cut[trial.lock], self.same[trial.lock] = cut, same
        if cut < STOCK:
            trial.missing = f"{cut} of {STOCK} replies were dropped"
        elif same < STOCK:
            trial.wrong.append(f"{same} of {STOCK} victims have their one order")

    def observed(self, trials: Sequence[Trial]) -> str:
        """How many replies were dropped, and how many victims got their order."""
        return (
            f"{sum(self.cut.values())} replies to COMMIT were dropped; asked again with the same "
            f"key, {sum(self.same.values())} buyers have the one order that they had"
        )
