"""One rush, in the process that opened its sale: what was asked, its figures, and the verdict."""

import socket
import uuid
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import Any

import psutil

from loadtest.judge.history import Event as Recorded
from loadtest.judge.intervals import SAID, Request, by_attempt
from loadtest.judge.verdict import Judgement
from loadtest.stack.client import ShopUnreachable
from loadtest.target.count import Count, match, scope
from loadtest.target.target import Target


@dataclass
class Member:
    """One process with buyers.

    id      Locust's name of it: the machine's name, and a random part
    buyers  the numbers of its buyers
    pid     its process; 0 before it says that it is here
    """

    id: str
    buyers: range
    pid: int = 0
    arrived: bool = False
    reported: bool = False

    @property
    def machine(self) -> str:
        return self.id.rpartition("_")[0] or self.id

    def has_ended(self) -> bool:
        """Whether a process of this machine is gone. Of another machine it is not known."""
        try:
            is_known = self.pid and self.machine == socket.gethostname()
            return bool(is_known) and psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True


@dataclass
class Rush:
    """The buyers of one sale, and what they asked.

    members      the processes that have them, by Locust's names of them
    released_at  the moment of the monotonic clock at which everybody may buy; 0 before that
    stopped      whether it was stopped before everybody had an answer
    broken       why there is no verdict: the target is wrong, or a process ended before the release
    lost         who ended after the release, with buyers that had no answer
    """

    target: Target
    buyers: int
    stock: int
    deadline_s: float
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    members: dict[str, Member] = field(default_factory=dict)
    arrived: int = 0
    released_at: float = 0.0
    requests: list[Request] = field(default_factory=list)
    stopped: bool = False
    broken: ShopUnreachable | None = None
    lost: list[str] = field(default_factory=list)
    is_judged: bool = False

    @cached_property
    def count(self) -> Count:
        keys = {f"buyer-{number}": self.key(number) for number in range(self.buyers)}
        return Count(self.target, keys)

    @property
    def over(self) -> bool:
        """Whether there will be no verdict, whatever else happens."""
        return bool(self.broken or self.lost or self.is_judged)

    def share(self, ids: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """Expect the buyers from these processes. Returns the share of each, as a range: its first
        buyer and every n-th after it."""
        shares = {id: (first, self.buyers, len(ids)) for first, id in enumerate(ids[: self.buyers])}
        self.members = {id: Member(id, range(*share)) for id, share in shares.items()}
        return shares

    def take(self, arrived: int, requests: Sequence[Request]) -> None:
        """Add what the buyers of one process report."""
        self.arrived += arrived
        self.requests += requests

    def break_off(self, error: ShopUnreachable) -> None:
        """End it without a verdict."""
        self.broken = self.broken or error

    def lose(self, member: Member) -> None:
        """A process is gone. Nobody knows what its buyers have asked since the release."""
        who, many = f"worker {member.buyers.start} on {member.machine}", len(member.buyers)
        if self.released_at:
            self.lost.append(f"{who} is gone, {many} of its buyers had no answer")
            return
        what = f"{who} is gone, and with it {many} of {self.buyers} buyers: nobody was released"
        self.break_off(ShopUnreachable(f"{what}. Its log says why; start it and the rush again"))

    def key(self, buyer: int) -> str:
        """The Idempotency-Key of a buyer in this rush."""
        return f"{self.id}/buyer-{buyer}"

    def events(self) -> list[Recorded]:
        """Every request and every answer, oldest first."""
        return recorded(self.requests, self.target.name, self.target.product, self.target.sale)

    def failed(self, reason: str) -> dict[str, Any]:
        """The run of a rush that could not be judged."""
        of = {"lock": self.target.name, "sale": self.target.sale}
        return {**of, "verdict": "unknown", "error": reason}

    def result(self) -> dict[str, Any]:
        """This run as `summary.json` has it, from the shop's own record. One that was stopped, or
        lost buyers, is `unknown`, unless it had oversold by then. Raises ShopUnreachable."""
        if self.broken is not None:
            raise self.broken
        last = {one.attempt: one for one in self.requests}
        self.count.settle(sum(one.outcome == "sold" for one in last.values()))
        left, opened = self.count.stock(), self.count.opened
        found = self.count.orders()
        orders = match(found, self.requests, keyed=self.target.keyed)
        judgement = Judgement(
            events=self.events(),
            initial_stock=self.stock,
            opened=self.stock if opened is None else opened,
            stock_left=self.stock - len(orders) if left is None else left,
            orders=orders,
            unsettled=self.target.unsettled(),
            buyers=list(self.count.keys.values()),
            arrived=self.buyers if self.lost else self.arrived,
            lock=self.target.name,
            product=self.target.product,
            sale=self.target.sale,
            undisturbed=True,
        )
        run: dict[str, Any] = {
            "lock": self.target.name,
            "fault": "rush",
            "sale": self.target.sale,
            "attempts": self.id,
            "buyers": self.buyers,
            "arrived": self.arrived,
            "hold_ms": self.target.hold_ms,
            **judgement.as_run(),
            **figures(self.requests),
        }
        run |= scope(self.target, listed=not isinstance(found, int), shows_stock=left is not None)
        if left is None:
            run |= {"stock_left": None, "lost_updates": None}
        run |= {"stopped": True} if self.stopped else {}
        run |= {"lost": self.lost} if self.lost else {}
        judge_cut_short(run)
        return run


def figures(requests: Sequence[Request]) -> dict[str, Any]:
    """Those that a run has in summary.json, where judge/run.py says what they are. `buy_ms` is of
    each buyer's whole purchase, `requests` of each single request, with those that asked again."""
    answers = [
        (asked[0].sent / 1e9, [one.answered / 1e9 for one in asked if one.answered is not None])
        for asked in by_attempt(requests).values()
    ]
    first = [sent for sent, _ in answers]
    known = [(sent, answered) for sent, answered in answers if answered]
    began = min((sent for sent, _ in known), default=0.0)
    ended = max((answered[-1] for _, answered in known), default=0.0)
    took = [(one.answered - one.sent) / 1e6 for one in requests if one.answered is not None]
    return {
        "duration_s": round(ended - began, 3),
        "buy_ms": percentiles(((done[-1] - sent) * 1000 for sent, done in known), 50, 95, 99),
        "arrival_spread_ms": round((max(first) - min(first)) * 1000, 1) if first else 0.0,
        "began_s": began,
        "requests": percentiles(took, 50, 99),
        "in_flight": in_flight([(sent, answered[0]) for sent, answered in known]),
    }


def in_flight(intervals: Iterable[tuple[float, float]]) -> int:
    """The most requests that were sent and not yet answered at one instant."""
    steps = sorted(step for sent, answered in intervals for step in ((sent, 1), (answered, -1)))
    return max(accumulate(step for _, step in steps), default=0)


def percentiles(values: Iterable[float], *percents: int) -> dict[str, float]:
    """The percentiles p50, p99 and so on, and the largest: `max`. Each is the smallest value that
    at least so many percent of them do not exceed (nearest rank); without values 0."""
    ordered = sorted(values) or [0.0]
    ranks = {f"p{percent}": ceil(len(ordered) * percent / 100) for percent in percents}
    ranks["max"] = len(ordered)
    return {name: round(ordered[rank - 1], 1) for name, rank in ranks.items()}


def recorded(requests: Sequence[Request], lock: str, product: str, sale: int) -> list[Recorded]:
    """Requests and answers as a history has them, oldest first."""
    of_all = {"by": "buyer", "f": "buy", "lock": lock, "product": product, "sale": sale}
    found: list[Any] = []
    for request in requests:
        who = {**of_all, "attempt": request.attempt}
        found.append({**who, "type": "invoke", "t": request.sent})
        if request.answered is not None:
            answer = {"type": request.type, "t": request.answered, "outcome": request.outcome}
            more = {name: getattr(request, name) for name in SAID}
            answer |= {name: value for name, value in more.items() if value not in (None, "")}
            found.append({**who, **answer})
    return sorted(found, key=lambda event: int(event["t"]))


def judge_cut_short(run: MutableMapping[str, Any]) -> None:
    """Make the verdict on a rush that was stopped, or lost buyers, `unknown`, unless it had
    oversold by then: that stays true."""
    stopped = ["the rush was stopped"] if run.get("stopped") else []
    if reasons := "; ".join([*stopped, *run.get("lost", ())]):
        run["verdict"] = "oversold" if run["oversold"] else "unknown"
        run["why"] = f"{reasons}: {run.get('why') or 'not everybody had an answer'}"


def sentence(result: Mapping[str, Any]) -> str:
    """The result of a rush, in a line or a few."""
    said = f"{result['verdict'].upper()} [{result.get('lock', '-')}]"
    if "orders" in result:
        said += (
            f": {result['orders']} orders for {result['initial_stock']} units, "
            f"{result['stock_left']} left on the shelf"
        )
    more = [f"not judged: {what}" for what in result.get("not_judged", ())]
    reasons = [result.get("why"), *result.get("findings", ()), result.get("error")]
    return "\n".join([said, *more, *dict.fromkeys(str(one) for one in reasons if one)])
