"""A buyer in a thread of its own, which asks again with the same key until an answer is final."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from loadtest.judge.history import History
from loadtest.judge.verdict import ASK_AGAIN
from loadtest.stack.client import Refused, Shop, ShopUnreachable

#: Seconds that a buyer waits before asking again.
PAUSE = (0.05, 0.2)
#: Outcomes that leave open whether something was sold: `info` in the history.
IN_DOUBT = frozenset({"unknown"})


@dataclass(eq=False)
class Buyer:
    """Buys one unit.

    attempt     the Idempotency-Key: <run>/<fault>/<lock>/<buyer>
    sale        number of the sale that the buyer comes for; 0: whichever is open
    stop        the point at which the purchase stops until it is resumed, or empty
    asks_again  whether the buyer asks again until an answer is final
    hold_ms     milliseconds that the purchase spends between its check and its decrement
    outcome     of the last answer, and `first` of the first one; empty while there is none
    order       the number that the last answer named, if it did
    replayed    whether the last answer named an order that the key had before
    error       what the last answer said was wrong, if it did
    sold_at     when it bought, by the monotonic clock; 0 before
    answered    set when the buyer has its final answer
    """

    history: History
    attempt: str
    lock: str
    product: str
    sale: int = 0
    stop: str = ""
    asks_again: bool = True
    hold_ms: int = 0
    outcome: str = ""
    first: str = ""
    order: int | None = None
    error: str = ""
    replayed: bool = False
    sold_at: float = 0.0
    answered: threading.Event = field(default_factory=threading.Event)
    _enough: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self, *shops: Shop) -> None:
        """Buy in a thread: see `buy`."""
        self._thread = threading.Thread(target=self.buy, args=shops, daemon=True)
        self._thread.start()

    def buy(self, *shops: Shop) -> None:
        """Ask these nodes in turn until an answer is final or give_up is called."""
        nodes = cycle(shops)
        while not (self.answered.is_set() or self._enough.is_set()):
            self.ask(next(nodes))
            if not self.asks_again:
                break
            if not self.answered.is_set():
                self._enough.wait(random.uniform(*PAUSE))
        self.answered.set()

    def ask(self, shop: Shop) -> str:
        """Ask once, and record the request and its answer. A final one ends the purchase. Returns
        the outcome."""
        common = {
            "attempt": self.attempt,
            "lock": self.lock,
            "product": self.product,
            "sale": self.sale,
            "node": shop.name,
        }
        self.history.record(by="buyer", f="buy", type="invoke", **common)
        body: dict[str, Any] = {}
        try:
            _, body = shop.buy(
                product=self.product,
                lock=self.lock,
                buyer=self.attempt.rpartition("/")[2],
                key=self.attempt,
                sale=self.sale,
                stop=self.stop,
                hold_ms=self.hold_ms,
            )
            outcome = str(body.get("outcome", "unknown"))
        except Refused:
            outcome = "unavailable"
        except ShopUnreachable:
            outcome = "unknown"
        if outcome == "error":
            outcome = "unknown" if "order" not in body and not body.get("allowed") else "error"
        kind = "ok" if outcome == "sold" else "info" if outcome in IN_DOUBT else "fail"
        self.order, self.replayed = body.get("order"), bool(body.get("replayed"))
        self.error = str(body.get("error", ""))
        said = ("order", "replayed", "error")
        more: dict[str, Any] = {name: body[name] for name in said if name in body}
        if outcome == "sold":
            self.sold_at = time.monotonic()
            more |= {"sold_in": body.get("sale"), "fence": body.get("lock", {}).get("fence")}
            more["stock_seen"] = body.get("stock_seen")
        self.history.record(by="buyer", f="buy", type=kind, outcome=outcome, **common, **more)
        self.outcome, self.first = outcome, self.first or outcome
        if outcome not in ASK_AGAIN:
            self.answered.set()
        return outcome

    @property
    def started(self) -> bool:
        """Whether it runs in a thread, or did."""
        return self._thread is not None

    def give_up(self) -> None:
        """Stop asking."""
        self._enough.set()

    def join(self, seconds: float) -> bool:
        """Wait for the final answer. Returns whether it came."""
        return self.answered.wait(seconds)
