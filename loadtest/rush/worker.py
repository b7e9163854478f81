"""The buyers of a rush in workers of Locust: the part of one worker (master.py has the other)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import gevent
from gevent.event import Event

from loadtest.judge.intervals import Request
from loadtest.rush import wire
from loadtest.rush.clock import machine
from loadtest.rush.crowd import Crowd, Done, Share
from loadtest.rush.open_files import TooFewFiles, allow
from loadtest.stack.client import ShopUnreachable
from loadtest.target.errors import TargetError
from loadtest.target.target import Target

#: Seconds in which arrivals and answers are gathered into one message, and how many it may have.
BATCH_S, BATCH = 0.03, 500


class Link(Protocol):
    """How messages come and go: links.WorkerLink, or a test's."""

    def listen(self, kind: str, hear: Callable[[dict[str, Any]], None]) -> None: ...
    def send(self, kind: str, data: dict[str, Any]) -> None: ...
    def send_figures(self) -> None: ...


class Worker:
    """The crowd of this worker, in one rush after the other; its report goes to the master.

    make  the target, from what the master says of it
    """

    crowd: Crowd | None = None

    def __init__(self, link: Link, make: Callable[[Mapping[str, Any]], Target]) -> None:
        self.link = link
        self.make = make
        self._machine = machine()
        self._count = 0
        self._done: list[Done] = []
        self._something = Event()
        for kind, hear in (
            (wire.ANNOUNCE, self._announced),
            (wire.GO, self._go),
            (wire.END, self._end),
            (wire.CLOCK, self._clock),
        ):
            link.listen(kind, hear)
        gevent.spawn(self._post)

    # What the master says.

    def _announced(self, told: dict[str, Any]) -> None:
        stayed = self.crowd
        self._count, self._done = 0, []
        share = Share(told["buyers"], told["first"], told["of"])
        try:
            allow(
                len(share.numbers),
                what=f"a worker with {len(share.numbers)} buyers",
                otherwise="take more workers",
            )
            target = self.make(told)
            vars(target).update(told["target"])
        except (ShopUnreachable, TooFewFiles) as error:
            self.link.send(wire.BROKEN, {"rush": told["rush"], "error": str(error)})
            return
        self.crowd = Crowd(
            told["rush"], target=target, share=share, deadline_s=told["deadline_s"], report=self
        )
        if stayed is not None:
            stayed.replaced.set()

    def _go(self, told: dict[str, Any]) -> None:
        if self._is_present(told):
            assert self.crowd is not None
            gevent.spawn(self.crowd.release, told["at"])

    def _end(self, told: dict[str, Any]) -> None:
        if self._is_present(told):
            self.close()

    def _clock(self, told: dict[str, Any]) -> None:
        self.link.send(wire.CLOCK, {**told, "there": time.monotonic(), "machine": self._machine})

    def _is_present(self, told: dict[str, Any]) -> bool:
        return self.crowd is not None and self.crowd.id == told["rush"]

    def close(self) -> None:
        """End the present rush here, and say what is not said yet."""
        if self.crowd is not None:
            self.crowd.close()

    # What it says, as the report of its crowd.

    def arrive(self, count: int = 1) -> None:
        self._count += count
        self._something.set()

    def leave(self, done: Done) -> None:
        self._done.append(done)
        self._something.set()

    def rest(self, requests: list[Request]) -> None:
        self._flush()
        self.link.send_figures()
        self._say(wire.REST, requests=[wire.packed_request(one) for one in requests])

    def break_off(self, error: ShopUnreachable) -> None:
        self._say(wire.BROKEN, error=str(TargetError(error)))

    def _post(self) -> None:
        """Send what there is to say, in batches."""
        while True:
            self._something.wait()
            gevent.sleep(BATCH_S)
            self._something.clear()
            self._flush()

    def _flush(self) -> None:
        if self._count:
            count, self._count = self._count, 0
            self._say(wire.ARRIVED, count=count)
        while self._done:
            batch, self._done = self._done[:BATCH], self._done[BATCH:]
            self._say(wire.DONE, done=[wire.packed_done(one) for one in batch])

    def _say(self, kind: str, **data: Any) -> None:
        assert self.crowd is not None
        self.link.send(kind, {"rush": self.crowd.id, **data})
