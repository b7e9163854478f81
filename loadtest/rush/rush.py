"""One rush: buyers wait at a barrier until the last one arrives."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from gevent.event import Event

from loadtest.judge.history import Event as Recorded
from loadtest.judge.history import History
from loadtest.judge.intervals import ProductHistory, Request
from loadtest.judge.verdict import ASK_AGAIN, Asked, Judgement, Reply, judge
from loadtest.rush import measure
from loadtest.rush.measure import Interval
from loadtest.target.answer import Answer
from loadtest.target.count import Count, match, scope
from loadtest.target.errors import TargetError
from loadtest.target.target import Target

#: What the events of a buyer have of an answer.
SAID = ("order", "replayed", "fence", "sold_in", "error")


@dataclass
class Rush:
    """The buyers of one sale, and the replies that they got.

    Counting arrivals gives a spread of some ten milliseconds. With Locust's `spawning_complete`
    some buyers would still be warming up.
    """

    target: Target
    buyers: int
    stock: int
    deadline_s: float
    arrived: int = 0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    gate: Event = field(default_factory=Event)
    finished: Event = field(default_factory=Event)
    replaced: Event = field(default_factory=Event)
    stopped: bool = False
    released_at: float = 0.0
    began_with: int = 0
    replies: dict[str, Reply] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    is_judged: bool = False
    #: What is wrong with the target, when a buyer met it first: then there is no verdict.
    broken: TargetError | None = None

    def __post_init__(self) -> None:
        self.count = Count(self.target)

    @property
    def lock(self) -> str:
        """What the tables call it: the strategy, or the name of the target."""
        return self.target.name

    @property
    def sale(self) -> int:
        """The number of the sale; 0 where the shop has no numbers."""
        return self.target.sale

    def open_sale(self) -> None:
        """Open a new sale. Raises ShopUnreachable."""
        self.count.open(self.stock)

    def break_off(self, error: TargetError) -> None:
        """End it without a verdict: the target is wrong."""
        self.broken = self.broken or error
        self.gate.set()
        self.finished.set()

    def asks_again(self, answer: Answer) -> bool:
        """Whether a buyer with this answer asks again: it may, and it is not too late."""
        may = answer.outcome == "busy" or self.target.repeatable
        return may and answer.outcome in ASK_AGAIN and not self.over()

    def key(self, buyer: int) -> str:
        """The Idempotency-Key of a buyer in this rush."""
        return f"{self.id}/buyer-{buyer}"

    def ask(self, key: str) -> Request:
        """Record that a buyer asks now."""
        self.requests.append(Request(key, time.monotonic_ns()))
        return self.requests[-1]

    def write(self, path: str) -> None:
        """Append all requests and answers to a history. Raises OSError.

        Call it after the rush: during it, it would delay all the buyers.
        """
        with History(path) as history:
            for event in self.events():
                history.record(**event)

    def events(self) -> list[Recorded]:
        """Every request and every answer, oldest first."""
        found: list[Any] = []
        of_all: dict[str, Any] = {
            "by": "buyer",
            "f": "buy",
            "lock": self.lock,
            "product": self.target.product,
        }
        of_all |= {"sale": self.sale}
        for request in self.requests:
            who = {**of_all, "attempt": request.attempt}
            found.append({**who, "type": "invoke", "t": request.sent})
            if request.answered is not None:
                answer = {"type": request.type, "t": request.answered, "outcome": request.outcome}
                more = {name: getattr(request, name) for name in SAID}
                answer |= {name: value for name, value in more.items() if value not in (None, "")}
                found.append({**who, **answer})
        return sorted(found, key=lambda event: int(event["t"]))

    def arrive(self) -> None:
        """Wait at the barrier until every buyer is there."""
        self.arrived += 1
        if self.arrived == self.buyers:
            self.begin()
        self.gate.wait()

    def begin(self) -> None:
        """Let everybody buy who is there."""
        self.released_at = time.monotonic()
        self.began_with = self.arrived
        self.gate.set()

    def over(self) -> bool:
        """Whether it is too late to ask again."""
        return time.monotonic() > self.released_at + self.deadline_s

    def stop(self) -> None:
        """End it now, if it is not over: whoever has no answer by now will get none."""
        if not self.finished.is_set():
            self.stopped = True
            self.gate.set()
            self.finished.set()

    def progress(self) -> dict[str, Any]:
        """How far it is; `left_s`: seconds until its buyers give up, None before their release."""
        released = self.gate.is_set() and self.released_at
        left = round(max(0.0, self.released_at + self.deadline_s - time.monotonic()), 1)
        return {
            "sale": self.sale,
            "lock": self.lock,
            "buyers": self.buyers,
            "arrived": self.arrived,
            "answered": len(self.replies),
            "left_s": left if released else None,
        }

    def failed(self, reason: str) -> dict[str, Any]:
        """The run of a rush that could not be judged."""
        return {"lock": self.lock, "sale": self.sale, "verdict": "unknown", "error": reason}

    def leave(self, reply: Reply, interval: Interval) -> None:
        """Record the last answer to a buyer."""
        self.replies[reply.key] = reply
        self.intervals.append(interval)
        if len(self.replies) >= self.began_with:
            self.finished.set()

    def result(self) -> dict[str, Any]:
        """This run as `summary.json` has it, from the shop's own record. One that was stopped is
        `unknown`, unless it had oversold by then."""
        if self.broken is not None:
            raise self.broken
        left, opened = self.count.stock(), self.count.opened
        keys = {f"buyer-{number}": self.key(number) for number in range(self.buyers)}
        found = self.count.orders(keys)
        orders, replies = match(found, self.requests, list(self.replies.values()))
        judgement = judge(
            initial_stock=self.stock if opened is None else opened,
            stock_left=self.stock - len(orders) if left is None else left,
            orders=orders,
            replies=replies,
            history=ProductHistory(self.events()),
            asked=Asked(
                stock=self.stock,
                buyers=list(keys.values()),
                arrived=self.arrived,
                lock=self.lock,
                product=self.target.product,
                sale=self.sale,
                undisturbed=True,
            ),
        )
        run = self._as_run(judgement)
        run |= scope(self.target, listed=not isinstance(found, int), shows_stock=left is not None)
        if left is None:
            run |= {"stock_left": None, "lost_updates": None}
        if self.stopped:
            run["stopped"] = True
            run["verdict"] = "oversold" if run["oversold"] else "unknown"
            run["why"] = f"the rush was stopped: {run.get('why', 'not everybody had an answer')}"
        return run

    def _as_run(self, judgement: Judgement) -> dict[str, Any]:
        return {
            "lock": self.lock,
            "fault": "rush",
            "sale": self.sale,
            "attempts": self.id,
            "buyers": self.buyers,
            "arrived": self.arrived,
            "hold_ms": self.target.hold_ms,
            **judgement.as_run(),
            "duration_s": measure.duration_s(self.intervals),
            "buy_ms": measure.latency_ms(self.intervals),
            "arrival_spread_ms": measure.spread_ms(self.intervals),
            "began_s": measure.began_s(self.intervals),
            "requests": measure.requests_ms(self.requests),
            "in_flight": measure.in_flight(self.intervals),
        }
