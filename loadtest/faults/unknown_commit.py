"""unknown-commit: the order is committed, and the node does not know."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, Testbed
from loadtest.faults.trial import STOCK, Trial


class UnknownCommit(Fault):
    """The proxy drops PostgreSQL's reply to each victim's COMMIT. The row is there all the same.
    Each victim asks again with its key, and must get the order that it has, replayed, and not a
    second unit."""

    name = "unknown-commit"
    title = "the reply to COMMIT is dropped"

    def __init__(self) -> None:
        super().__init__()
        self.committed: dict[str, int] = {}
        self.replayed: dict[str, int] = {}

    def enter(self, trial: Trial) -> None:
        """No victim stops anywhere."""

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """Each victim sets its own rule in act."""

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        return "the proxy drops the replies, and counts them"

    def act(self, trial: Trial) -> None:
        """One victim for every unit, one after the other."""
        committed = replayed = 0
        shop = trial.testbed.shop(VICTIMS)
        for number in range(1, STOCK + 1):
            victim = trial.buyer(f"victim-{number:02}")
            # Its key is in its own transaction alone; a product's name is also looked up elsewhere.
            rule = trial.testbed.postgres.lose_reply(b"COMMIT", after=victim.attempt.encode())
            victim.ask(shop)
            dropped, before = rule.wait(0), self.orders_of(trial, victim.attempt)
            rule.cancel()
            committed += dropped and victim.first == "unknown" and len(before) == 1
            trial.send(victim, VICTIMS).join(20)
            # It sells at once where the COMMIT did not happen; a replay shows the earlier row.
            replayed += victim.replayed and before == [victim.order]
        self.committed[trial.lock], self.replayed[trial.lock] = committed, replayed
        if committed < STOCK:
            trial.miss(f"{committed} of {STOCK} orders were there before their buyers asked again")
        elif replayed < STOCK:
            trial.wrong.append(f"{replayed} of {STOCK} victims got their one order replayed")

    @staticmethod
    def orders_of(trial: Trial, key: str) -> list[int]:
        """The orders of this key that the database has."""
        orders = trial.testbed.shop().orders(trial.sale)
        return [int(order["order"]) for order in orders if order["key"] == key]

    def observed(self, trials: Sequence[Trial]) -> str:
        """How many replies were dropped, and how many victims got their order."""
        return (
            f"{sum(self.committed.values())} replies to COMMIT were dropped and the order was there"
            f" before its buyer asked again; {sum(self.replayed.values())} buyers got it replayed"
        )
