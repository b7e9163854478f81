"""What the events of one product amount to: requests, holds of its lock, and commits."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

from loadtest.judge.history import Event

#: What an answer says that is recorded beside its outcome: fields of Request and of an event.
SAID = ("order", "replayed", "fence", "released", "sold_in", "stock_seen", "error")
#: Who handles an attempt: node, pid, thread, attempt. Two may handle a repeated attempt at once.
_Handler = tuple[str, int, int, str]
_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


def type_of(outcome: str) -> str:
    """The type of the event of an answer with this outcome."""
    return {"sold": "ok", "unknown": "info"}.get(outcome, "fail")


def said(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer of the shop says, as its event has it."""
    lock = body.get("lock") or {}
    of_lock = {name: lock.get(name) for name in ("fence", "released")}
    found = {**body, "sold_in": body.get("sale"), **of_lock}
    return {name: found[name] for name in SAID if found.get(name) not in (None, "")}


@dataclass(slots=True)
class Request:
    """One request of a buyer. Without a recorded answer `answered` is None and `type` is info."""

    attempt: str
    sent: int
    answered: int | None = None
    type: str = "info"
    outcome: str = "unknown"
    order: int | str | None = None  # text only from a shop that is not ours
    replayed: bool | None = None
    error: str = ""
    fence: int | None = None  # what the answer says that the unit was sold with,
    sold_in: int | None = None  # the sale that it was sold in,
    stock_seen: int | None = None  # and the stock that it was sold out of
    released: str = ""  # what the release found, under a lock

    def answer(self, outcome: str, body: Mapping[str, Any]) -> None:
        """Record the answer, at the present time; `body` is all that it says."""
        self.answered = time.monotonic_ns()
        self.type = type_of(outcome)
        self.outcome = outcome
        for name, value in said(body).items():
            setattr(self, name, value)

    def covers(self, t: int) -> bool:
        """Whether the shop may have worked on this request at that time: from when it was sent
        until its answer, without one for any time."""
        if self.answered is None or self.type == "info":
            return self.sent <= t
        return self.sent <= t <= self.answered


#: Of a request, as `Request(*values)` takes them. astuple() copies each: that takes a hundred times
#: as long.
values = attrgetter(*Request.__slots__)


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """The items of each key, in their order."""
    found: dict[_Key, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


@dataclass(slots=True)
class Hold:
    """One grant of a lock, for as long as its holder certainly believed that it held it."""

    by: _Handler  # whose it was
    token: str
    fence: int | None
    asked: int  # when it asked for the lock; 0 where that was not recorded
    start: int  # when it got the lock
    end: int  # when it began to release it; without a release, its last recorded event
    released: bool = False
    outcome: str = ""  # what the release found: released, expired or unknown; empty: not recorded
    given_back: str = ""  # the token that the release named; empty: not recorded

    @property
    def attempt(self) -> str:
        return self.by[-1]

    @property
    def node(self) -> str:
        return self.by[0]


@dataclass(slots=True)
class Commit:
    """A node's COMMIT of an order."""

    attempt: str
    begun: int  # just before the COMMIT
    read_at: int | None = None  # when it last read the stock before that,
    amount: int | None = None  # and the stock that it read
    done: int | None = None  # just after the COMMIT, None if the node did not record that
    order: int | str | None = None  # the order's number, if the COMMIT happened
    hold: Hold | None = None  # the hold of the lock that it began in, None if there was none
    sale: int | None = None  # the sale that the node read, None if it did not record that


@dataclass(eq=False, repr=False)
class ProductHistory:
    """The events of one product, oldest first, and what they amount to, each computed once."""

    events: Sequence[Event] = ()

    @cached_property
    def requests(self) -> list[Request]:
        """What its buyers asked, in the order in which they asked."""
        found: list[Request] = []
        open_: dict[str, Request] = {}
        for event in self.events:
            if event["by"] != "buyer":
                continue
            attempt = event["attempt"]
            if event["type"] == "invoke":
                open_[attempt] = Request(attempt, event["t"])
                found.append(open_[attempt])
            elif attempt in open_:
                asked = open_.pop(attempt)
                asked.answered, asked.type = event["t"], event["type"]
                for name in ("outcome", *SAID):
                    setattr(asked, name, event.get(name, getattr(asked, name)))
        return found

    @cached_property
    def requests_of(self) -> dict[str, list[Request]]:
        return grouped(self.requests, attrgetter("attempt"))

    @cached_property
    def holds(self) -> list[Hold]:
        """Every grant of its lock, in the order of their starts."""
        found: list[Hold] = []
        asked: dict[_Handler, int] = {}
        open_: dict[_Handler, Hold] = {}
        released: dict[_Handler, Hold] = {}
        for by, event in self._handled():
            if event["f"] == "acquire":
                asked[by] = event["t"]
                open_.pop(by, None)
            elif event["f"] == "acquired" and event["type"] == "ok":
                token, fence = event.get("token", ""), event.get("fence")
                open_[by] = Hold(by, token, fence, asked.pop(by, 0), event["t"], event["t"])
                found.append(open_[by])
            elif by in open_:
                open_[by].end = event["t"]
                if event["f"] in {"release", "released"}:
                    released[by] = open_.pop(by)
                    released[by].released = True
                    released[by].given_back = event.get("token") or ""
            if event["f"] == "released" and by in released:
                released.pop(by).outcome = event.get("outcome") or ""
        return found

    @cached_property
    def commits(self) -> list[Commit]:
        """Every commit that a node recorded, in the order in which they began."""
        found: list[Commit] = []
        held = grouped(self.holds, lambda hold: hold.by)
        reads: dict[_Handler, Event] = {}
        promised: set[int | str | None] = {None}
        open_: dict[_Handler, Commit] = {}
        for by, event in self._handled():
            # A node that promises an order commits it thereby. One that is named again was promised
            # before, unless no reply had said so.
            promises = event["f"] == "reserved" and event.get("order") not in promised
            if event["f"] == "after_read":
                reads[by] = event
            elif promises or event["f"] == "before_commit":
                promised.add(event.get("order"))
                commit = Commit(event["attempt"], event["t"], order=event.get("order"))
                commit.sale = event.get("sale")
                for hold in held.get(by, ()):
                    if hold.start <= commit.begun <= hold.end:
                        commit.hold = hold
                if seen := event if promises else reads.get(by):
                    commit.read_at, commit.amount = seen["t"], seen.get("amount")
                open_[by] = commit
                found.append(commit)
            elif event["f"] == "after_commit" and by in open_:
                open_.pop(by).done = event["t"]
        return found

    def _handled(self) -> Iterator[tuple[_Handler, Event]]:
        for event in self.events:
            if event["by"] == "node":
                yield handler_of(event), event


def handler_of(event: Event) -> _Handler:
    """Return who recorded an event of a node."""
    return event.get("node", ""), event.get("pid", 0), event.get("thread", 0), event["attempt"]
