"""A buyer in the sales under faults. It repeats its request until an outcome is not retried."""

import random
import threading
import time
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from loadtest.judge.history import History
from loadtest.judge.intervals import parse_answer_fields
from loadtest.judge.outcomes import RETRIED_OUTCOMES, get_event_type
from loadtest.stack.client import ConnectionRefused, Shop, ShopUnreachable

#: The shortest and the longest pause of a buyer before it retries. The pause is random.
RETRY_PAUSE_SECONDS = (0.05, 0.2)


@dataclass(eq=False)
class FaultBuyer:
    """A buyer of one unit. loadtest/judge/outcomes.py defines which outcomes are retried.

    attempt     the Idempotency-Key: <unique_id of the fault>/<fault>/<lock>/<buyer>
    lock        the name of the strategy that guards the purchase
    sale        the number of the sale to buy from; 0 for the open sale
    stop_at     the points at which the purchase stops until it is resumed, comma-separated
    retries     whether the buyer repeats its request, with the same key, after a retried outcome
    hold_ms     milliseconds that the purchase spends between its check and its decrement
    first_outcome
                outcome of the first request; empty while there is none. A request without an answer
                has the outcome `unknown`, or `unavailable` if the connection was refused
    first_answered_at
                monotonic time at which the first request ended; 0 before that
    last_body   the body of the answer to the last request; empty without an answer
    sold_at     monotonic time of the answer `sold`; 0 before that
    finished_at
                monotonic time of the first outcome that is not retried; 0 before that
    has_started whether start() was called
    is_done     set when an outcome is not retried, or when buy() has ended
    """

    history: History
    attempt: str
    lock: str
    product: str
    sale: int = 0
    stop_at: str = ""
    retries: bool = True
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

        shops  clients of the nodes to which the buyer sends its requests in turn
        """
        self.has_started = True
        threading.Thread(target=self.buy, args=shops, daemon=True).start()

    def buy(self, *shops: Shop) -> None:
        """Send requests until an outcome is not retried, or give_up() is called.

        Without `retries`, send only one request.

        shops  clients of the nodes to which the requests are sent in turn
        """
        shops_in_turn = cycle(shops)
        try:
            while not (self.is_done.is_set() or self._gave_up.is_set()):
                self.send_request(next(shops_in_turn))
                if not self.retries:
                    break
                if not self.is_done.is_set():  # give_up() ends the pause
                    self._gave_up.wait(random.uniform(*RETRY_PAUSE_SECONDS))
        finally:
            # Other threads wait for `is_done`. They must not wait forever if there was an error.
            self.is_done.set()

    def send_request(self, shop: Shop) -> str:
        """Send one request, record the request and the answer, and return the outcome.

        If the outcome is not retried, the buyer is done.
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
        # If the body of an error has an `order`, a unit was sold. If it has `allowed` (the values
        # that the request may have), no unit was sold. After any other error both is possible.
        if outcome == "error" and "order" not in body and not body.get("allowed"):
            outcome = "unknown"
        if outcome == "sold":
            self.sold_at = time.monotonic()
        event_fields = {"outcome": outcome, **purchase_fields, **parse_answer_fields(body)}
        self.history.record(by="buyer", f="buy", type=get_event_type(outcome), **event_fields)
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
