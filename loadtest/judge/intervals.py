"""Requests, holds and commits: the intervals of time that the events of one product describe."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from loadtest.judge.history import Event
from loadtest.judge.outcomes import get_event_type

OrderNumber: TypeAlias = int | str  # only a third-party shop has numbers that are text
_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


class AttemptThread(NamedTuple):
    """The thread of a node that worked on an attempt.

    An attempt is all requests with one Idempotency-Key. So it may have several handlers.
    """

    node: str
    pid: int
    thread: int
    attempt: str

    @property
    def thread_of_node(self) -> tuple[str, int, int]:
        """The thread without the attempt. A thread works on many attempts, one after the other."""
        return self.node, self.pid, self.thread


def parse_answer_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the event of an answer gets from the answer's body.

    A field that the body lacks is left out. If the body's `lock` is not a JSON object, `fence` and
    `released` are left out, too: the answer may come from another program than the shop.
    """
    lock = body.get("lock")
    if not isinstance(lock, Mapping):
        lock = {}
    return _without_empty(
        {
            "order": body.get("order"),
            "replayed": body.get("replayed"),
            "fence": lock.get("fence"),
            "released": lock.get("released"),
            "sold_in": body.get("sale"),
            "stock_seen": body.get("stock_seen"),
            "error": body.get("error"),
        }
    )


def _without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are neither None nor an empty text."""
    return {name: value for name, value in fields.items() if value not in (None, "")}


@dataclass(slots=True)
class Request:
    """One request of a buyer, and its answer. Times are monotonic, in nanoseconds.

    The fields from `order` on are read from the answer. They are None or empty if the answer does
    not have them.

    answered_at  the time of the answer; None if none was recorded
    type         the type of the answer's event (history.py); `info` without an answer
    order        the number of the order
    replayed     whether an earlier request made the order
    error        the message of a refusal
    fence        the fence with which the unit was sold
    sold_in      the sale in which the unit was sold
    stock_seen   the stock from which the unit was sold
    released     the outcome of the release of the lock
    """

    attempt: str
    sent_at: int
    answered_at: int | None = None
    type: str = "info"
    outcome: str = "unknown"
    order: OrderNumber | None = None
    replayed: bool | None = None
    error: str = ""
    fence: int | None = None
    sold_in: int | None = None
    stock_seen: int | None = None
    released: str = ""

    @property
    def last_seen_at(self) -> int:
        """The time of the answer, or of the request if there is no answer."""
        return self.answered_at or self.sent_at

    def receive_answer(self, outcome: str, body: Mapping[str, Any]) -> None:
        """Record an answer that has just arrived from the shop."""
        fields = {"outcome": outcome, **parse_answer_fields(body)}
        self.record_answer(time.monotonic_ns(), get_event_type(outcome), fields)

    def record_answer(self, answered_at: int, type: str, fields: Mapping[str, Any]) -> None:
        """Record an answer from the fields of its event."""
        self.answered_at = answered_at
        self.type = type
        self.outcome = fields.get("outcome", "unknown")
        self.order = fields.get("order")
        self.replayed = fields.get("replayed")
        self.error = fields.get("error", "")
        self.fence = fields.get("fence")
        self.sold_in = fields.get("sold_in")
        self.stock_seen = fields.get("stock_seen")
        self.released = fields.get("released", "")

    def make_answer_fields(self) -> dict[str, Any]:
        """Return the fields of the answer for its event. Fields without a value are left out."""
        return _without_empty(
            {
                "order": self.order,
                "replayed": self.replayed,
                "fence": self.fence,
                "released": self.released,
                "sold_in": self.sold_in,
                "stock_seen": self.stock_seen,
                "error": self.error,
            }
        )

    def may_be_active_at(self, time_ns: int) -> bool:
        """Return whether the shop may have worked on this request at the time `time_ns`.

        The shop works on a request until it answers. If there is no answer, or if the purchase may
        have happened in spite of the answer (type `info`), any later time is possible.
        """
        if self.answered_at is None or self.type == "info":
            return self.sent_at <= time_ns
        return self.sent_at <= time_ns <= self.answered_at


#: Returns the fields of a request as a tuple, from which `Request(*fields)` restores the request.
#: dataclasses.astuple() would copy each field, and take a hundred times as long.
fields_of_request = attrgetter(*Request.__slots__)


def group_by(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Return a list of items for each key. The lists keep the order of `items`.

    key  returns the key of an item
    """
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(slots=True)
class LockHold:
    """The time from the grant of a lock to the beginning of its release.

    In this time the holder acts as if it held the lock, even if the lock has expired. A grant is
    the success of one acquisition. Times are monotonic, in nanoseconds.

    attempt_thread   the node's thread that works on the holder's purchase
    token            the token of the grant
    fence            the fence of the grant; None if the lock has no fence
    requested_at     when the holder began to acquire the lock; 0 if that was not recorded
    start            when the holder got the lock
    end              when the release began; without a release, the time of the holder's last event
    is_released      whether the release began
    release_outcome  released, expired or unknown; empty if it was not recorded
    released_token   the token that the holder sent to release; empty if it was not recorded
    """

    attempt_thread: AttemptThread
    token: str
    fence: int | None
    requested_at: int
    start: int
    end: int
    is_released: bool = False
    release_outcome: str = ""
    released_token: str = ""

    @property
    def attempt(self) -> str:
        return self.attempt_thread.attempt

    @property
    def node(self) -> str:
        return self.attempt_thread.node


@dataclass(slots=True)
class Commit:
    """A node's COMMIT of an order, or the promise of an order that a consumer writes later.

    Times are monotonic, in nanoseconds.

    begun_at    the time just before the COMMIT
    read_at     the time of the node's last read of the stock before the COMMIT
    stock_seen  the stock that the node read then
    done_at     the time just after the COMMIT; None if that was not recorded
    order       the number that the order has if the COMMIT happened
    hold        the hold of the lock in which the COMMIT began; None if there was none
    sale        the sale that the node read; None if that was not recorded
    """

    attempt: str
    begun_at: int
    read_at: int | None = None
    stock_seen: int | None = None
    done_at: int | None = None
    order: OrderNumber | None = None
    hold: LockHold | None = None
    sale: int | None = None


@dataclass(eq=False, repr=False)
class ProductHistory:
    """The events of one product, oldest first, and their requests, holds and commits.

    Requests, holds and commits are computed when they are first used.
    """

    events: Sequence[Event] = ()

    @cached_property
    def requests(self) -> list[Request]:
        """The requests of the buyers, in the order in which they were sent."""
        requests: list[Request] = []
        open_requests: dict[str, Request] = {}
        for event in self.events:
            if event["by"] != "buyer":
                continue
            attempt = event["attempt"]
            if event["type"] == "invoke":
                request = Request(attempt, event["t"])
                open_requests[attempt] = request
                requests.append(request)
            elif attempt in open_requests:
                request = open_requests.pop(attempt)
                request.record_answer(event["t"], event["type"], event)
        return requests

    @cached_property
    def requests_by_key(self) -> dict[str, list[Request]]:
        return group_by(self.requests, attrgetter("attempt"))

    @cached_property
    def holds(self) -> list[LockHold]:
        """All holds of the product's lock, in the order in which they began."""
        holds: list[LockHold] = []
        requested_at: dict[AttemptThread, int] = {}
        open_holds: dict[AttemptThread, LockHold] = {}
        released_holds: dict[AttemptThread, LockHold] = {}
        for event in self._node_events():
            attempt_thread = get_attempt_thread(event)
            kind = event["f"]
            if kind == "acquire":
                requested_at[attempt_thread] = event["t"]
                # If the thread still has an open hold, its release was not recorded. That hold
                # ended with its last event.
                open_holds.pop(attempt_thread, None)
            elif kind == "acquired" and event["type"] == "ok":
                hold = LockHold(
                    attempt_thread,
                    token=event.get("token", ""),
                    fence=event.get("fence"),
                    requested_at=requested_at.pop(attempt_thread, 0),
                    start=event["t"],
                    end=event["t"],
                )
                open_holds[attempt_thread] = hold
                holds.append(hold)
            elif attempt_thread in open_holds:  # an event during the hold, or its release
                hold = open_holds[attempt_thread]
                hold.end = event["t"]
                if kind in {"release", "released"}:
                    hold.is_released = True
                    hold.released_token = event.get("token") or ""
                    released_holds[attempt_thread] = open_holds.pop(attempt_thread)
            if kind == "released" and attempt_thread in released_holds:
                released_holds.pop(attempt_thread).release_outcome = event.get("outcome") or ""
        return holds

    @cached_property
    def commits(self) -> list[Commit]:
        """All commits that nodes recorded, in the order in which they began.

        If an order was promised (the event `reserved` with an order), the promise is its commit.
        """
        commits: list[Commit] = []
        holds_by_thread = group_by(self.holds, attrgetter("attempt_thread"))
        last_reads: dict[AttemptThread, Event] = {}
        # The orders that have a commit already. None is one of them, so that a `reserved` event
        # without an order is not taken for a promise.
        committed_orders: set[OrderNumber | None] = {None}
        open_commits: dict[AttemptThread, Commit] = {}
        for event in self._node_events():
            attempt_thread = get_attempt_thread(event)
            kind = event["f"]
            # A retried request gets the order that was promised before. That is no new promise.
            is_promise = kind == "reserved" and event.get("order") not in committed_orders
            if kind == "after_read":
                last_reads[attempt_thread] = event
            elif is_promise or kind == "before_commit":
                committed_orders.add(event.get("order"))
                # The event of a promise also has the stock that was read before it.
                read_event = event if is_promise else last_reads.get(attempt_thread)
                commit = _make_commit(event, read_event, holds_by_thread.get(attempt_thread, ()))
                open_commits[attempt_thread] = commit
                commits.append(commit)
            elif kind == "after_commit" and attempt_thread in open_commits:
                open_commits.pop(attempt_thread).done_at = event["t"]
        return commits

    def _node_events(self) -> Iterator[Event]:
        return (event for event in self.events if event["by"] == "node")


def _make_commit(event: Event, read_event: Event | None, holds: Sequence[LockHold]) -> Commit:
    """Return the commit that begins with `event`.

    Its field `hold` is the hold of the lock during which the commit began.

    read_event  the event of the last read of the stock before the commit
    holds       the holds of the node's thread that committed
    """
    commit = Commit(event["attempt"], event["t"], order=event.get("order"), sale=event.get("sale"))
    for hold in holds:
        if hold.start <= commit.begun_at <= hold.end:
            commit.hold = hold
    if read_event is not None:
        commit.read_at = read_event["t"]
        commit.stock_seen = read_event.get("amount")
    return commit


def get_attempt_thread(event: Event) -> AttemptThread:
    """Return the thread that recorded a node's event, with the attempt on which it worked."""
    return AttemptThread(
        event.get("node", ""), event.get("pid", 0), event.get("thread", 0), event["attempt"]
    )
