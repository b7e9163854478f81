"""Buyers in threads of their own that stop at every point and go on when the test says so.

    with Interleaving() as run:
        a = run.enter("A", buy_the_last_one)
        a.runs_to("after_read")      # A has read, and is stopped there
        b = run.enter("B", buy_the_last_one)
        b.finishes()                 # all of B happens now
        a.finishes()

No sleep and no luck: the test itself says which step follows which.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Self

from django.db import connections

from shop.sale import points

#: Points at which no thread stops: other points decide the order there.
PASSED = {"arrives", "begins", "reserve", "acquire", "release", "released"}


def is_passed(place: str) -> bool:
    """Whether no thread stops there: a point of PASSED, or one inside an article's lock."""
    return place in PASSED or ":" in place


#: Seconds until a thread that should have moved is given up.
TIMEOUT = 15.0


class Actor:
    """One thread: stopped at a point, at its end, or on its way to one."""

    def __init__(self, name: str, call: Callable[[], Any], run: Interleaving) -> None:
        self.name = name
        self.result: Any = None
        self.error: Exception | None = None
        #: The point that it reached last; None before the first one and at its end.
        self.place: str | None = None
        self._call = call
        self._interleaving = run
        self._reached: Queue[str | None] = Queue()
        self._go: Queue[Exception | None] = Queue()
        self._is_stopped = False
        self._ended = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def runs_to(self, place: str) -> Self:
        """Go on until `place` is reached, and stop there."""
        while (reached := self._next()) != place:
            if reached is None:
                raise AssertionError(f"{self.name} ended before {place}: {self.error!r}")
        return self

    def finishes(self) -> Any:
        """Go on to the end. What the thread returned, or raises what it raised."""
        while not self._ended:
            self._next()
        if self.error is not None:
            raise self.error
        return self.result

    def fails(self, error: Exception) -> Any:
        """Raise `error` where it is stopped, and go on to the end."""
        self._is_stopped = False
        self._go.put(error)
        return self.finishes()

    def is_between_points(self) -> bool:
        """It was resumed, and has reached no point since."""
        return self._reached.empty()

    def starts(self) -> Self:
        """Go on, without waiting for the next point."""
        if self._is_stopped:
            self._is_stopped = False
            self._go.put(None)
        return self

    def stops_within(self, seconds: float) -> bool:
        """Whether it reaches its next point, `place`, or its end by then."""
        try:
            self.place = self._reached.get(timeout=seconds)
        except Empty:
            return False
        self._is_stopped = self.place is not None
        self._ended = self.place is None
        return True

    def _next(self) -> str | None:
        self.starts()
        if not self.stops_within(TIMEOUT):
            raise AssertionError(f"{self.name} is stuck; so far: {self._interleaving.log}")
        return self.place

    def _run(self) -> None:
        try:
            self.result = self._call()
        except Exception as error:
            self.error = error
        finally:
            connections.close_all()
            self._reached.put(None)

    def stop_at(self, place: str) -> None:
        """Called in the actor's own thread."""
        self._interleaving.log.append(f"{self.name} {place}")
        self._reached.put(place)
        if not self._interleaving.over.is_set():
            error = self._go.get(timeout=2 * TIMEOUT)
            if error is not None:
                raise error

    def set_free(self) -> None:
        self._go.put(None)


class Interleaving:
    """Threads and their points. `log`: who reached which point, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.over = threading.Event()
        self._actors: dict[threading.Thread, Actor] = {}

    def enter(self, name: str, call: Callable[[], Any]) -> Actor:
        """Start a thread. It stops at its first point."""
        actor = Actor(name, call, self)
        self._actors[actor.thread] = actor
        actor.thread.start()
        return actor

    def __enter__(self) -> Self:
        self._before = points.installed(self._at_point)
        self._before.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        for actor in self._actors.values():
            actor.set_free()
        for thread in self._actors:
            thread.join(TIMEOUT)
        self._before.__exit__(kind, error, trace)

    def _at_point(self, place: str, facts: Mapping[str, object]) -> None:
        actor = self._actors.get(threading.current_thread())
        if actor is not None and not is_passed(place):
            actor.stop_at(place)
