"""A buyer of the faults, who retries with the same key while the outcome is a retried one."""

import random
import threading
import time
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from loadtest.judge.history import History
from loadtest.judge.intervals import parse_answer_fields
from loadtest.judge.outcomes import RETRIED_OUTCOMES, event_type_of
from loadtest.stack.client import ConnectionRefused, Shop, ShopUnreachable

#: A buyer waits for a random time between these before it retries.
RETRY_PAUSE_SECONDS = (0.05, 0.2)


@dataclass(eq=False)
class FaultBuyer:
    """A buyer of one unit. loadtest/judge/outcomes.py says which outcomes are retried.

    attempt     the Idempotency-Key: <unique_id of the fault>/<fault>/<lock>/<buyer>
    lock        the name of the strategy that guards the purchase
    sale        the number of the sale to buy from; 0 for the open sale
    stop_at     the points at which the purchase stops until it is resumed, comma-separated
    asks_again  whether the buyer asks again, with its key, after a retried outcome
    hold_ms     milliseconds that the purchase spends between its check and its decrement
    first_outcome
                outcome of the first request, empty until then. Without an answer it is `unknown`,
                or `unavailable` if the connection was refused
    first_answered_at
                end of the first request by the monotonic clock; 0 until then
    last_body   the body of the answer to the last request; empty without an answer
    sold_at     time of the answer `sold` by the monotonic clock; 0 before it
    finished_at
                time of the first answer that is not retried, by the monotonic clock; 0 before it
    has_started whether start() was called
    is_done     set when the last outcome is not retried, or buy() has ended
    """

    history: History
    attempt: str
    lock: str
    product: str
    sale: int = 0
    stop_at: str = ""
    asks_again: bool = True
    hold_ms: int = 0
    first_outcome: str = ""
    first_answered_at: float = 0.0
    last_body: dict[str, Any] = field(default_factory=dict)
    sold_at: float = 0.0
    finished_at: float = 0.0
    has_started: bool = False
    is_done: threading.Event = field(default_factory=threading.Event)
    _gave_up: threading.Event = field(default_factory=threading.Event)

    def start(self, *shops: Shop) -> None:
        """Run buy() in a thread.

        shops  the clients of the nodes that the buyer asks in turn
        """
        self.has_started = True
        threading.Thread(target=self.buy, args=shops, daemon=True).start()

    def buy(self, *shops: Shop) -> None:
        """Ask the nodes in turn until an outcome is final, or give_up() is called.

        A final outcome is one that is not retried. Without `asks_again`, ask only once.

        shops  the clients of the nodes
        """
        shops_in_turn = cycle(shops)
        try:
            while not (self.is_done.is_set() or self._gave_up.is_set()):
                self.ask(next(shops_in_turn))
                if not self.asks_again:
                    break
                if not self.is_done.is_set():  # give_up() ends the pause
                    self._gave_up.wait(random.uniform(*RETRY_PAUSE_SECONDS))
        finally:
            # Other threads wait for the end of the purchase, even if it ends by an error.
            self.is_done.set()

    def ask(self, shop: Shop) -> str:
        """Send one request, record the request and the answer, and return the outcome.

        An outcome that is not retried ends the purchase.
        """
        purchase_fields = {
            "attempt": self.attempt,
            "lock": self.lock,
            "product": self.product,
            "sale": self.sale,
            "node": shop.name,
        }
        self.history.record(by="buyer", f="buy", type="invoke", **purchase_fields)
        body: dict[str, Any] = {}
        try:
            _, body = shop.buy(
                product=self.product,
                lock=self.lock,
                buyer=self.attempt.rpartition("/")[2],
                key=self.attempt,
                sale=self.sale,
                stop_at=self.stop_at,
                hold_ms=self.hold_ms,
            )
            outcome = str(body.get("outcome", "unknown"))
        except ConnectionRefused:  # the shop has not received the request
            outcome = "unavailable"
        except ShopUnreachable:
            outcome = "unknown"
        # An error with an `order` says that a unit was sold. An error with `allowed`, the values
        # that the request may have, says that none was. Any other error says neither.
        if outcome == "error" and "order" not in body and not body.get("allowed"):
            outcome = "unknown"
        if outcome == "sold":
            self.sold_at = time.monotonic()
        event_fields = {"outcome": outcome, **purchase_fields, **parse_answer_fields(body)}
        self.history.record(by="buyer", f="buy", type=event_type_of(outcome), **event_fields)
        if not self.first_outcome:
            self.first_answered_at = time.monotonic()
            self.first_outcome = outcome
        self.last_body = body
        if outcome not in RETRIED_OUTCOMES:
            self.finished_at = self.finished_at or time.monotonic()
            self.is_done.set()
        return outcome

    def give_up(self) -> None:
        """Make buy() stop after its present request."""
        self._gave_up.set()
