"""`unknown-commit`: the reply to COMMIT is lost.

Node A serves the victims, node B their rivals; fault.py explains these words and the steps.
"""

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import ANSWER_TIMEOUT_SECONDS, VICTIMS_NODE
from loadtest.faults.trial import STOCK, Trial


class UnknownCommitFault(Fault):
    """The proxy drops the database's reply to each victim's COMMIT.

    The order is committed all the same. Each victim asks again with its key. The shop must answer
    with the existing order, and not sell a second unit.
    """

    name = "unknown-commit"
    title = "the reply to COMMIT is dropped"

    def arm(self) -> None:
        """Prepare the lists of counts; run_buyers() adds one count for each trial."""
        self.committed_counts: list[int] = []
        self.replayed_counts: list[int] = []

    def enter(self, trial: Trial) -> None:
        """Do nothing: run_buyers() sends the victims, which stop at no point."""

    def prove(self) -> str:
        """Return how the proxy makes the fault.

        The fault happens only in run_buyers(). For each victim it tells the proxy to drop the reply
        to the COMMIT, and it counts the dropped replies.
        """
        return "the proxy drops the replies, and counts them"

    def run_buyers(self, trial: Trial) -> None:
        """For each unit in stock, lose the reply to a victim's COMMIT; let the victim ask again.

        Count the orders that were committed before the repetition, and the repetitions that were
        answered with the existing order (`replayed`).
        """
        committed_count = 0
        replayed_count = 0
        shop = self.testbed.shop(VICTIMS_NODE)
        for number in range(1, STOCK + 1):
            victim = trial.add_buyer(f"victim-{number:02}")
            key = victim.attempt
            # The proxy drops the reply to the first COMMIT that follows the victim's key. Only the
            # victim's transaction contains this key.
            rule = self.testbed.database_proxy.lose_reply(b"COMMIT", after=key.encode())
            victim.ask(shop)
            was_reply_dropped = rule.fired and victim.first_outcome == "unknown"
            order_numbers = [
                order["order"] for order in shop.orders(trial.sale) if order["key"] == key
            ]
            if was_reply_dropped and len(order_numbers) == 1:
                committed_count += 1
            rule.cancel()
            trial.send(victim, VICTIMS_NODE).is_done.wait(2 * ANSWER_TIMEOUT_SECONDS)
            # If the first COMMIT had not taken effect, this request would sell without `replayed`.
            answer = victim.last_body
            if answer.get("replayed") and order_numbers == [answer.get("order")]:
                replayed_count += 1
        self.committed_counts.append(committed_count)
        self.replayed_counts.append(replayed_count)
        if committed_count < STOCK:
            trial.mark_inconclusive(
                f"only {committed_count} of {STOCK} orders existed before their buyers asked again"
            )
        elif replayed_count < STOCK:
            trial.problems.append(
                f"only {replayed_count} of {STOCK} victims were answered with their existing order"
            )

    def describe_observations(self) -> str:
        """Return the numbers of dropped replies and of replayed orders."""
        return (
            f"{sum(self.committed_counts)} replies to COMMIT were dropped and the order was there"
            f" before its buyer asked again; {sum(self.replayed_counts)} buyers got it replayed"
        )
