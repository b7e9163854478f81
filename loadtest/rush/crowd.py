"""The buyers of this process in one rush: they wait at a barrier, ask, and report what happened."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import Protocol

import gevent
from gevent.event import Event

from loadtest.judge.intervals import Request
from loadtest.judge.verdict import ASK_AGAIN, Reply
from loadtest.rush.measure import Interval
from loadtest.stack.client import ShopUnreachable
from loadtest.target.answer import Answer
from loadtest.target.target import Target

#: Seconds before the moment of a release in which this process computes instead of sleeping: the
#: timers of an event loop with thousands of buyers are late by milliseconds.
SPIN = 0.002


@dataclass(frozen=True, slots=True)
class Share:
    """The buyers of a rush that one process has: every `of`-th from `first` on.

    Locust gives its workers their users in turn: the numbers of all are 0 to `buyers` - 1.
    """

    buyers: int
    first: int = 0
    of: int = 1

    def number(self, place: int) -> int | None:
        """The number of the process's buyer at this place, None if the rush has no such buyer."""
        number = self.first + place * self.of
        return number if number < self.buyers else None

    @property
    def numbers(self) -> range:
        return range(self.first, self.buyers, self.of)


@dataclass(frozen=True, slots=True)
class Done:
    """A buyer with a last answer: all that it asked, and from when to when."""

    requests: list[Request]
    reply: Reply
    interval: Interval


class Report(Protocol):
    """Where a crowd says what happened: the rush itself, or messages to the process that has it."""

    def arrive(self, count: int = 1) -> None:
        """So many more buyers are at the barrier."""

    def leave(self, done: Done) -> None:
        """A buyer has its last answer."""

    def rest(self, requests: list[Request]) -> None:
        """This is what buyers without a last answer have asked."""

    def break_off(self, error: ShopUnreachable) -> None:
        """The target is wrong: there will be no verdict."""


def key(rush: str, buyer: int) -> str:
    """The Idempotency-Key of a buyer in the rush with this id."""
    return f"{rush}/buyer-{buyer}"


class Crowd:
    """The buyers of this process in one rush.

    Counting arrivals gives a spread of some ten milliseconds. With Locust's `spawning_complete`
    some buyers would still be warming up.

    id        of the rush
    report    who hears of arrivals and answers
    replaced  set when the buyers may take part in another rush
    """

    def __init__(
        self, id: str, *, target: Target, share: Share, deadline_s: float, report: Report
    ) -> None:
        self.id = id
        self.target = target
        self.share = share
        self.deadline_s = deadline_s
        self.report = report
        self.gate = Event()
        self.replaced = Event()
        self.closed = False
        self.released_at = 0.0
        self._asked: dict[str, list[Request]] = {}

    def key(self, buyer: int) -> str:
        """The Idempotency-Key of a buyer in this rush."""
        return key(self.id, buyer)

    def arrive(self) -> float:
        """Wait at the barrier until every buyer of the rush is there. Returns seconds."""
        arrived = time.monotonic()
        self.report.arrive()
        self.gate.wait()
        return time.monotonic() - arrived

    def release(self, at: float = 0.0) -> None:
        """Let everybody buy who is there, at this moment of the monotonic clock, or now.

        gevent wakes one after the other, and reads no answer before the last of them has sent.
        """
        gc.freeze()  # no collection walks through thousands of buyers while they send
        if at:
            gevent.sleep(max(0.0, at - SPIN - time.monotonic()))
        while time.monotonic() < at:
            pass
        self.released_at = time.monotonic()
        self.gate.set()

    def close(self) -> None:
        """Nobody asks any more, nor again: the rush is over, or stopped. Report what buyers without
        a last answer have asked, once."""
        self.closed = True
        self.gate.set()
        gc.unfreeze()  # buyers that are gone are garbage, for a collection to find
        asked, self._asked = self._asked, {}
        self.report.rest([request for requests in asked.values() for request in requests])

    def over(self) -> bool:
        """Whether it is too late to ask again."""
        return self.closed or time.monotonic() > self.released_at + self.deadline_s

    def asks_again(self, answer: Answer) -> bool:
        """Whether a buyer with this answer asks again: it may, and it is not too late."""
        may = answer.outcome == "busy" or self.target.repeatable
        return may and answer.outcome in ASK_AGAIN and not self.over()

    def ask(self, key: str) -> Request:
        """Record that a buyer asks now."""
        request = Request(key, time.monotonic_ns())
        self._asked.setdefault(key, []).append(request)
        return request

    def leave(self, reply: Reply, interval: Interval) -> None:
        """Report the last answer to a buyer."""
        self.report.leave(Done(self._asked.pop(reply.key, []), reply, interval))

    def break_off(self, error: ShopUnreachable) -> None:
        """Report that the target is wrong."""
        self.report.break_off(error)
