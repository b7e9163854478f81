"""`unknown-commit`: the reply to COMMIT is lost.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import ANSWER_TIMEOUT_SECONDS, VICTIMS_NODE
from loadtest.faults.trial import STOCK, Trial


class UnknownCommitFault(Fault):
    """The proxy drops the database's reply to each victim's COMMIT.

    The order is committed in spite of that. Each victim sends its request again, with the same key.
    The shop must answer with the existing order, and not sell a second unit.
    """

    name = "unknown-commit"
    title = "the reply to COMMIT is dropped"

    def arm(self) -> None:
        """Prepare the counts, to which run_buyers() adds one number for each trial."""
        self.committed_counts: list[int] = []  # orders that existed although the reply was dropped
        self.replayed_counts: list[int] = []  # retries that were answered with the existing order

    def start_first_buyers(self, trial: Trial) -> None:
        """Do nothing: run_buyers() starts the victims. Their purchases never stop at a point."""

    def prove(self) -> str:
        """Return what the proxy does. There is nothing to prove yet.

        The fault happens in run_buyers(), which checks for each victim that the reply was dropped.
        """
        return "the proxy drops the replies, and counts them"

    def run_buyers(self, trial: Trial) -> None:
        """Let one victim for each unit in stock buy, and drop the reply to its COMMIT.

        Then each victim sends its request again. Count the orders that existed before that, and the
        second requests that were answered with the existing order (`replayed`).
        """
        committed_count = 0
        replayed_count = 0
        shop = self.testbed.shop(VICTIMS_NODE)
        for number in range(1, STOCK + 1):
            victim = trial.add_buyer(f"victim-{number:02}")
            key = victim.attempt
            # The proxy drops the reply to the first COMMIT that follows the victim's key. Only the
            # victim's transaction contains this key.
            drop_rule = self.testbed.database_proxy.lose_reply(b"COMMIT", after=key.encode())
            victim.send_request(shop)
            was_reply_dropped = drop_rule.fired and victim.first_outcome == "unknown"
            order_numbers = [
                order["order"] for order in shop.orders(trial.sale) if order["key"] == key
            ]
            if was_reply_dropped and len(order_numbers) == 1:
                committed_count += 1
            drop_rule.cancel()
            trial.start_buyer(victim, VICTIMS_NODE).is_done.wait(2 * ANSWER_TIMEOUT_SECONDS)
            # If the first COMMIT had not taken effect, the second request would get a new order,
            # and an answer without `replayed`.
            answer_body = victim.last_body
            if answer_body.get("replayed") and order_numbers == [answer_body.get("order")]:
                replayed_count += 1
        self.committed_counts.append(committed_count)
        self.replayed_counts.append(replayed_count)
        if committed_count < STOCK:
            trial.mark_inconclusive(
                f"only {committed_count} of {STOCK} orders existed before the second requests"
            )
        elif replayed_count < STOCK:
            trial.problems.append(
                f"only {replayed_count} of {STOCK} victims were answered with their existing order"
            )

    def describe_observations(self) -> str:
        """Return how many replies were dropped, and how many buyers got their order replayed."""
        return (
            f"{sum(self.committed_counts)} replies to COMMIT were dropped and the order was in the "
            f"database before its buyer repeated the request; {sum(self.replayed_counts)} buyers "
            "were answered with that order"
        )
