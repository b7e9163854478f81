"""One rush: buyers meet at a barrier, the last one to arrive releases all of them."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from gevent.event import Event

from loadtest.judge.history import History
from loadtest.judge.intervals import Request
from loadtest.judge.verdict import Judgement, Reply, judge
from loadtest.rush import measure
from loadtest.rush.measure import Interval
from loadtest.stack.client import Shop


@dataclass
class Rush:
    """The buyers of one sale, where they are and what they were told.

    Counting arrivals gives a spread of some ten milliseconds; waiting for Locust's
    `spawning_complete` lets buyers in who are still warming up.
    """

    shop: Shop
    lock: str
    buyers: int
    stock: int
    hold_ms: int
    product: str
    deadline_s: float
    sale: int = 0
    arrived: int = 0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    gate: Event = field(default_factory=Event)
    finished: Event = field(default_factory=Event)
    replaced: Event = field(default_factory=Event)
    released_at: float = 0.0
    told: dict[str, Reply] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def open_sale(self) -> None:
        """A new sale with a full shelf. Raises ShopUnreachable."""
        self.sale = int(self.shop.restock(product=self.product, stock=self.stock)["sale"])

    def key(self, buyer: int) -> str:
        """The Idempotency-Key of a buyer in this rush."""
        return f"{self.id}/buyer-{buyer}"

    def ask(self, key: str) -> Request:
        """A buyer is about to ask, once."""
        self.requests.append(Request(key, time.monotonic_ns()))
        return self.requests[-1]

    def write(self, path: str) -> None:
        """Append what was asked and answered to a history. After the rush: during it, every
        microsecond in this process is one for all the buyers. Raises OSError."""
        with History(path) as history:
            for request in self.requests:
                who: dict[str, Any] = {"attempt": request.attempt, "lock": self.lock}
                who["product"] = self.product
                history.record(by="buyer", f="buy", type="invoke", t=request.sent, **who)
                if request.answered is not None:
                    told = {"t": request.answered, "outcome": request.outcome}
                    told |= {"order": request.order} if request.order is not None else {}
                    history.record(by="buyer", f="buy", type=request.type, **told, **who)

    def arrive(self) -> None:
        """Wait at the barrier until every buyer is there."""
        self.arrived += 1
        if self.arrived == self.buyers:
            self.released_at = time.monotonic()
            self.gate.set()
        self.gate.wait()

    def over(self) -> bool:
        """Whether it is too late to ask again."""
        return time.monotonic() > self.released_at + self.deadline_s

    def leave(self, told: Reply, interval: Interval) -> None:
        """A buyer has its last answer."""
        self.told[told.key] = told
        self.intervals.append(interval)
        if len(self.told) == self.buyers:
            self.finished.set()

    def result(self) -> dict[str, Any]:
        """What `summary.json` says of this run (design section 4), from the shop's own record."""
        report = self.shop.sale(self.sale)
        unanswered = {key: Reply(key, "unknown") for key in map(self.key, range(self.buyers))}
        judgement = judge(
            initial_stock=int(report["initial_stock"]),
            stock_left=int(report["stock_left"]),
            orders=self.shop.orders(self.sale),
            replies=list({**unanswered, **self.told}.values()),
        )
        return self._as_run(judgement)

    def _as_run(self, judgement: Judgement) -> dict[str, Any]:
        return {
            "lock": self.lock,
            "fault": "rush",
            "sale": self.sale,
            "attempts": self.id,
            "buyers": self.buyers,
            "hold_ms": self.hold_ms,
            **judgement.as_run(),
            "duration_s": measure.duration_s(self.intervals),
            "buy_ms": measure.latency_ms(self.intervals),
            "arrival_spread_ms": measure.spread_ms(self.intervals),
            "in_flight": measure.in_flight(self.intervals),
        }
