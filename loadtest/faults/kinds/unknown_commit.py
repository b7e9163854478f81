"""`unknown-commit`: the reply to COMMIT is lost."""

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS
from loadtest.faults.trial import STOCK, Trial


class UnknownCommitFault(Fault):
    """The proxy drops the database's reply to each victim's COMMIT. The row is there all the same.
    Each victim asks again with its key, and must get the order that it has, replayed, and not a
    second unit."""

    name = "unknown-commit"
    title = "the reply to COMMIT is dropped"

    def arm(self) -> None:
        self.committed: list[int] = []
        self.replayed: list[int] = []

    def enter(self, trial: Trial) -> None:
        """No victim stops anywhere."""

    def prove(self) -> str:
        """Each victim sets its own rule in act."""
        return "the proxy drops the replies, and counts them"

    def act(self, trial: Trial) -> None:
        """One victim for every unit, one after the other."""
        committed = replayed = 0
        shop = self.testbed.shop(VICTIMS)
        for number in range(1, STOCK + 1):
            victim = trial.buyer(f"victim-{number:02}")
            key = victim.attempt
            # Only its own transaction has its key; a product's name is also looked up elsewhere.
            rule = self.testbed.database_proxy.lose_reply(b"COMMIT", after=key.encode())
            victim.ask(shop)
            dropped = rule.fired
            orders = [order["order"] for order in shop.orders(trial.sale) if order["key"] == key]
            committed += dropped and victim.first == "unknown" and len(orders) == 1
            rule.cancel()
            trial.send(victim, VICTIMS).is_done.wait(20)
            # It sells at once where the COMMIT did not happen; a replay shows the earlier row.
            answer = victim.last_body
            replayed += bool(answer.get("replayed")) and orders == [answer.get("order")]
        self.committed.append(committed)
        self.replayed.append(replayed)
        if committed < STOCK:
            trial.miss(f"{committed} of {STOCK} orders were there before their buyers asked again")
        elif replayed < STOCK:
            trial.wrong.append(f"{replayed} of {STOCK} victims got their one order replayed")

    def observed(self) -> str:
        """Return how many replies were dropped, and how many victims got their order."""
        return (
            f"{sum(self.committed)} replies to COMMIT were dropped and the order was there"
            f" before its buyer asked again; {sum(self.replayed)} buyers got it replayed"
        )
