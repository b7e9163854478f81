"""One buyer in a thread of its own, who asks again with the same key until the answer stands."""

from __future__ import annotations

import random
import threading
import time
from itertools import cycle
from typing import Any

from loadtest.judge.history import History
from loadtest.judge.verdict import ASK_AGAIN, Told
from loadtest.stack.client import Refused, Shop, ShopUnreachable

#: Seconds that a buyer waits before asking again.
PAUSE = (0.05, 0.2)
#: Outcomes after which something may have been sold: `info` in the history.
IN_DOUBT = frozenset({"unknown"})


class Buyer:
    """Buys one unit.

    attempt  the Idempotency-Key: <run>/<fault>/<lock>/<who>
    stop     the point at which the purchase is to stand, or empty
    returns  whether the buyer asks again; one that does not is gone with its answer
    told     what was answered last
    first    the first answer's outcome, empty while there is none
    """

    def __init__(
        self,
        history: History,
        *,
        attempt: str,
        lock: str,
        product: str,
        stop: str = "",
        returns: bool = True,
    ) -> None:
        self.history = history
        self.attempt = attempt
        self.lock = lock
        self.product = product
        self.stop = stop
        self.returns = returns
        self.told = Told(attempt, "unknown")
        self.first = ""
        self.sold_at = 0.0
        self.answered = threading.Event()
        self._enough = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, *shops: Shop) -> None:
        """Go shopping in a thread; see `buy`."""
        self._thread = threading.Thread(target=self.buy, args=shops, daemon=True)
        self._thread.start()

    def buy(self, *shops: Shop) -> None:
        """Go shopping, at these nodes in turn; returns with the answer that stands."""
        nodes = cycle(shops)
        while not (self.answered.is_set() or self._enough.is_set()):
            self.keep(self.ask(next(nodes)))
            if not self.returns:
                break
            if not self.answered.is_set():
                self._enough.wait(random.uniform(*PAUSE))
        self.answered.set()

    def keep(self, told: Told) -> None:
        """Remember what was told; done if it stands."""
        self.told = told
        self.first = self.first or told.outcome
        if told.outcome == "sold":
            self.sold_at = time.monotonic()
        if told.outcome not in ASK_AGAIN:
            self.answered.set()

    def ask(self, shop: Shop) -> Told:
        """Ask once, and record what was asked and answered."""
        common = {
            "attempt": self.attempt,
            "lock": self.lock,
            "product": self.product,
            "node": shop.name,
        }
        self.history.tell(by="buyer", f="buy", type="invoke", **common)
        body: dict[str, Any] = {}
        try:
            _, body = shop.buy(
                product=self.product,
                lock=self.lock,
                buyer=self.attempt.rpartition("/")[2],
                key=self.attempt,
                stop=self.stop,
            )
            outcome = str(body.get("outcome", "unknown"))
        except Refused:
            outcome = "unavailable"
        except ShopUnreachable:
            outcome = "unknown"
        if outcome == "error":
            outcome = "unknown" if "order" not in body and not body.get("allowed") else "error"
        kind = "ok" if outcome == "sold" else "info" if outcome in IN_DOUBT else "fail"
        more = {name: body[name] for name in ("order", "replayed", "error") if name in body}
        self.history.tell(by="buyer", f="buy", type=kind, outcome=outcome, **common, **more)
        return Told(self.attempt, outcome, body.get("order"))

    @property
    def shopping(self) -> bool:
        """Whether it was sent, and may still be at it."""
        return self._thread is not None

    def give_up(self) -> None:
        """Ask no more."""
        self._enough.set()

    def join(self, seconds: float) -> bool:
        """Wait for the answer that stands; whether it came."""
        return self.answered.wait(seconds)
