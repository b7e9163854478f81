"""One rush, in the process that opened its sale: who arrived, what was answered, the verdict."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from gevent.event import Event

from loadtest.judge.history import Event as Recorded
from loadtest.judge.history import History
from loadtest.judge.intervals import ProductHistory, Request
from loadtest.judge.verdict import Asked, Judgement, Reply, judge
from loadtest.rush import crowd, measure
from loadtest.rush.crowd import Done
from loadtest.rush.cut_short import cut_short, reasons_of
from loadtest.rush.gathering import Gathering, Local
from loadtest.rush.measure import Interval
from loadtest.stack.client import ShopUnreachable
from loadtest.target.count import Count, match, scope
from loadtest.target.target import Target

#: The fields of an answer that are recorded in a buyer's event.
SAID = ("order", "replayed", "fence", "sold_in", "stock_seen", "error")


@dataclass
class Rush:
    """The buyers of one sale, and the replies that they got.

    gathering  where the buyers are
    gate       set when they are released, or when it is over before that
    """

    target: Target
    buyers: int
    stock: int
    deadline_s: float
    gathering: Gathering = field(default_factory=Local)
    arrived: int = 0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    gate: Event = field(default_factory=Event)
    finished: Event = field(default_factory=Event)
    begun: bool = False
    stopped: bool = False
    released_at: float = 0.0
    #: How many buyers' last answers are awaited.
    awaited: int = 0
    replies: dict[str, Reply] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    is_judged: bool = False
    #: Why there is no verdict: what is wrong with the target, when a buyer met it first, or who
    #: was lost before the release.
    broken: ShopUnreachable | None = None
    #: Who was lost after the release, with buyers that had no answer.
    lost: list[str] = field(default_factory=list)
    #: Why what was reported cannot be true.
    doubts: list[str] = field(default_factory=list)

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
        """Open a new sale, and announce it to the buyers. Raises ShopUnreachable."""
        before = dict(vars(self.target))
        self.count.open(self.stock)
        self.gathering.announce(self, before=before)

    def key(self, buyer: int) -> str:
        """The Idempotency-Key of a buyer in this rush."""
        return crowd.key(self.id, buyer)

    def arrive(self, count: int = 1) -> None:
        """So many more buyers are at the barrier. With the last one all are released."""
        self.arrived += count
        if self.arrived >= self.buyers:
            self.begin()

    def begin(self) -> None:
        """Release the buyers who have arrived, once."""
        if not self.begun and not self.gate.is_set():
            self.begun = True
            self.gathering.release()

    def released(self, at: float) -> None:
        """The buyers who have arrived are released at this moment of the monotonic clock."""
        self.released_at = at
        self.awaited = self.arrived
        self.gate.set()

    def leave(self, done: Done) -> None:
        """A buyer has its last answer."""
        self.replies[done.reply.key] = done.reply
        self.requests += done.requests
        self.intervals.append(done.interval)
        if not self.lost and self.all_left():
            self.finished.set()

    def all_left(self) -> bool:
        """Whether every buyer who can have a last answer has it."""
        return len(self.replies) >= self.awaited

    def lose(self, who: str, keys: list[str]) -> None:
        """The buyers with these keys will never report an answer. What they asked may have been
        sent at any time since the release."""
        self.lost.append(who)
        self.awaited -= len(keys)
        self.requests += [Request(key, int(self.released_at * 1e9)) for key in keys]

    def break_off(self, error: ShopUnreachable) -> None:
        """End it without a verdict."""
        self.broken = self.broken or error
        self.gate.set()
        self.finished.set()

    def stop(self) -> None:
        """End it now, if it is not over: whoever has no answer by now will get none."""
        if not self.finished.is_set():
            self.stopped = True
            self.gate.set()
            self.finished.set()

    def rest(self, requests: list[Request]) -> None:
        """Add the requests of buyers without a last answer."""
        self.requests += requests

    def close(self) -> None:
        """End the requests. After that, those that were not answered are known."""
        self.gathering.close()

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

    def progress(self) -> dict[str, Any]:
        """How far it is; `left_s`: seconds until its buyers give up, None before their release."""
        left = round(max(0.0, self.released_at + self.deadline_s - time.monotonic()), 1)
        return {
            "sale": self.sale,
            "lock": self.lock,
            "buyers": self.buyers,
            "arrived": self.arrived,
            "answered": len(self.replies),
            "left_s": left if self.gate.is_set() and self.released_at else None,
        }

    def failed(self, reason: str) -> dict[str, Any]:
        """The run of a rush that could not be judged."""
        return {"lock": self.lock, "sale": self.sale, "verdict": "unknown", "error": reason}

    def result(self) -> dict[str, Any]:
        """This run as `summary.json` has it, from the shop's own record. One that was stopped, or
        lost buyers, is `unknown`, unless it had oversold by then."""
        if self.broken is not None:
            raise self.broken
        self.count.settle(sum(reply.outcome == "sold" for reply in self.replies.values()))
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
            unsettled=self.target.unsettled(),
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
        run |= {"stopped": True} if self.stopped else {}
        run |= {"lost": self.lost} if self.lost else {}
        run |= {"doubts": self.doubts} if self.doubts else {}
        if reasons := reasons_of(run):
            cut_short(run, reasons)
        return run | self.gathering.figures()

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
