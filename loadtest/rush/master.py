"""The buyers of a rush in workers of Locust: the master's part.

It sends `rush` with all that a worker has to know, counts those who `arrived`, compares clocks, and
sends `rush_go` with a moment a little ahead. The workers send what is `done` in batches, and the
`rest` when the rush is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

import gevent
from gevent.event import Event

from loadtest.rush import wire
from loadtest.rush.clock import machine
from loadtest.rush.crowd import Share
from loadtest.rush.member import MISSES, Member
from loadtest.rush.rush import Rush
from loadtest.stack.client import ShopUnreachable
from loadtest.target.errors import TargetError

logger = logging.getLogger("loadtest")

#: Seconds from the message to the moment of the release: the message has to be there by then.
LEAD = 0.05
#: How often each clock is compared before the release, and seconds for one answer.
COMPARISONS, ANSWER_TIMEOUT = 5, 10.0
#: Seconds between two checks that every worker is connected.
LOOK_EVERY = 0.3
#: A worker that is lost in mid-rush: seconds for what its buyers had asked for to be done in the
#: shop, and seconds for the other buyers to get their answers.
SETTLE, SETTLE_AT_MOST = 3.0, 8.0
#: Seconds for the workers to report the requests that were never answered.
COLLECT_TIMEOUT = 5.0


class WorkerLost(ShopUnreachable):
    """A worker ended before the release. The message says what to do."""


class Link(Protocol):
    """Sends and receives messages: links.MasterLink, or a test's."""

    ids: list[str]

    def listen(self, kind: str, hear: Callable[[str, dict[str, Any]], None]) -> None: ...
    def send(self, id: str, kind: str, data: dict[str, Any]) -> None: ...
    def reach(self, id: str, kind: str, data: dict[str, Any]) -> bool: ...
    def has(self, id: str) -> bool: ...
    def is_missing(self, id: str) -> bool: ...
    def drop(self, id: str) -> None: ...


class Workers:
    """All buyers are in workers. `options`: what a worker has to know, beside the rush."""

    crowd = None  # the master has none

    def __init__(self, link: Link, options: Callable[[], dict[str, Any]]) -> None:
        self.link = link
        self.options = options
        self.members: dict[str, Member] = {}
        self.rush: Rush | None = None
        self._machine = machine()
        self._heard = Event()
        for kind, hear in (
            (wire.ARRIVED, self._arrived),
            (wire.DONE, self._done),
            (wire.REST, self._rest),
            (wire.BROKEN, self._broken),
            (wire.CLOCK, self._clock),
        ):
            link.listen(kind, self._listener(hear))

    @property
    def present(self) -> list[Member]:
        """The workers of the present rush, without those that are lost."""
        return [member for member in self.members.values() if not member.lost]

    def announce(self, rush: Rush, *, before: dict[str, Any]) -> None:
        self.rush = rush
        of = len(self.link.ids)
        self.members = {
            id: Member(id, Share(rush.buyers, first, of)) for first, id in enumerate(self.link.ids)
        }
        self._wait_for_listeners()
        message = {
            "rush": rush.id,
            "buyers": rush.buyers,
            "of": of,
            "deadline_s": rush.deadline_s,
            "target": wire.state(rush.target, before),
            **self.options(),
        }
        for member in self.present:
            self.link.send(member.id, wire.ANNOUNCE, {**message, "first": member.share.first})
        gevent.spawn(self._look_after, rush)

    def _wait_for_listeners(self) -> None:
        """Wait until every worker answers. One that has just connected does not listen yet, and
        Locust drops the messages that reach it before that. Raises WorkerLost."""
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while silent := [member for member in self.members.values() if not member.answers]:
            if time.monotonic() > deadline:
                raise WorkerLost(
                    f"{silent[0].name} does not answer: nobody was released. Its log says why; "
                    "start it again, and the rush"
                )
            self._heard.clear()
            for member in silent:
                self._is_there(member)
            self._heard.wait(0.1)

    def release(self) -> None:
        gevent.spawn(self._release, self.rush)

    def _release(self, rush: Rush) -> None:
        """Compare the clocks, which also shows that every worker answers, and set the moment."""
        for _ in range(COMPARISONS):
            if not self._ask_all(rush):
                return
        slowest = max(member.clock.error for member in self.present)
        at = time.monotonic() + max(LEAD, 4 * slowest)
        rush.released(at)
        for member in self.present:
            self.link.send(member.id, wire.GO, {"rush": rush.id, "at": at + member.ahead})
        logger.info("released %d buyers of %d workers", rush.arrived, len(self.present))

    def _ask_all(self, rush: Rush) -> bool:
        """Ask every worker for its clock. Returns whether all answered and the rush is still on."""
        before = {member.id: member.answers for member in self.present}
        for member in self.present:
            self._is_there(member)
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while silent := [m for m in self.present if m.answers == before[m.id]]:
            if rush.gate.is_set():
                return False
            if time.monotonic() > deadline:
                self._lose(rush, silent[0], "does not answer")
            self._wait()
        return not rush.gate.is_set()

    def close(self) -> None:
        rush = self.rush
        assert rush is not None
        self._send_all(wire.END, {"rush": rush.id})
        deadline = time.monotonic() + COLLECT_TIMEOUT
        while rush.released_at and time.monotonic() < deadline:
            if all(m.collected for m in self.present if self.link.has(m.id)):
                return
            self._wait()

    def stopping(self) -> None:
        if self.rush is not None:
            for member in self.present:
                if self.link.is_missing(member.id):
                    self._lose(self.rush, member, "sends no heartbeats")

    def has_all(self) -> bool:
        return all(self.link.has(member.id) for member in self.present)

    def refusal(self) -> str:
        gone = [m.name for m in self.members.values() if m.lost or not self._is_there(m)]
        return f"{gone[0]} is gone: stop the run and start it again" if gone else ""

    def figures(self) -> dict[str, Any]:
        assert self.rush is not None
        at = self.rush.released_at
        return {"locust_workers": [m.figures(at) for m in self.members.values()]}

    # Messages of the workers.

    def _listener(
        self, hear: Callable[[Member, Rush, dict[str, Any]], None]
    ) -> Callable[[str, dict[str, Any]], None]:
        """Messages of an earlier rush, or of a worker without a part in this one, are ignored."""

        def listen(id: str, data: dict[str, Any]) -> None:
            member, rush = self.members.get(id), self.rush
            if member is not None and rush is not None and data["rush"] == rush.id:
                hear(member, rush, data)
                self._heard.set()

        return listen

    def _arrived(self, member: Member, rush: Rush, message: dict[str, Any]) -> None:
        member.arrived += message["count"]
        rush.arrive(message["count"])

    def _done(self, member: Member, rush: Rush, message: dict[str, Any]) -> None:
        for values in message["done"]:
            done = wire.done(values, member.ahead)
            member.intervals.append(done.interval)
            doubt = member.doubt(done, released_at=rush.released_at, now=time.monotonic())
            if doubt and not any(one.startswith(member.name) for one in rush.doubts):
                rush.doubts.append(doubt)
            rush.leave(done)

    def _rest(self, member: Member, rush: Rush, message: dict[str, Any]) -> None:
        rush.rest([wire.request(one, member.ahead) for one in message["requests"]])
        member.collected = True

    def _broken(self, member: Member, rush: Rush, message: dict[str, Any]) -> None:
        rush.break_off(TargetError(message["error"]))

    def _clock(self, member: Member, rush: Rush, message: dict[str, Any]) -> None:
        member.hear(message, received=time.monotonic(), machine=self._machine)

    # Lost workers.

    def _look_after(self, rush: Rush) -> None:
        """Until the rush is over, notice a worker that is lost."""
        while not rush.finished.wait(LOOK_EVERY):
            for member in self.present:
                member.misses = 0 if self._is_there(member) else member.misses + 1
                if member.misses >= MISSES:
                    self._lose(rush, member, "is gone")

    def _is_there(self, member: Member) -> bool:
        """Ask a worker what its clock is. Returns whether it is connected."""
        assert self.rush is not None
        data = {"rush": self.rush.id, "sent": time.monotonic()}
        return self.link.reach(member.id, wire.CLOCK, data)

    def _lose(self, rush: Rush, member: Member, why: str) -> None:
        """Give a worker up. Before the release that ends the rush; after it, its buyers count as
        unanswered."""
        member.lost = True
        self.link.drop(member.id)
        count = len(member.share.numbers)
        if not rush.released_at:
            rush.break_off(
                WorkerLost(
                    f"{member.name} {why}, and with it {count} of {rush.buyers} buyers: nobody was "
                    "released. Its log says why it ended; start it again, and the rush"
                )
            )
            return
        unanswered = member.unanswered(rush.key, rush.replies)
        what = f"{member.name} {why}, {len(unanswered)} of its buyers had no answer"
        logger.warning("%s", what)
        if unanswered:
            rush.lose(what, unanswered)
            gevent.spawn(self._settle, rush)

    def _settle(self, rush: Rush) -> None:
        """End a rush that lost buyers: there will be no verdict, whatever the others get."""
        began = time.monotonic()
        gevent.sleep(SETTLE)
        while not rush.all_left() and time.monotonic() < began + SETTLE_AT_MOST:
            gevent.sleep(0.1)
        rush.finished.set()

    # Messages.

    def _wait(self) -> None:
        """Wait for a message of a worker, at most 0.1 s."""
        self._heard.clear()
        self._heard.wait(0.1)

    def _send_all(self, kind: str, data: dict[str, Any]) -> None:
        for member in self.present:
            self.link.send(member.id, kind, data)
