"""Buyers in threads of their own that stop at every point and go on when the test says so.

    with Interleaving() as run:
        a = run.enter("A", buy_the_last_one)
        a.runs_to("after_read")      # A has read, and is stopped there
        b = run.enter("B", buy_the_last_one)
        b.finishes()                 # all of B happens now
        a.finishes()

No sleep and no luck: the test itself says which step follows which.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Self

import testing.actor
from shop.sale import points
from testing.actor import ENDED

#: Points at which no thread stops: other points decide the order there.
PASSED = {"arrives", "begins", "reserve", "acquire", "release", "released"}
#: Seconds until a thread that should have moved is given up.
TIMEOUT = 15.0
#: What `waits_at` is while a thread is on its way.
MOVES = "on its way"


def is_passed(place: str) -> bool:
    """Whether no thread stops there: a point of PASSED, or one inside an article's lock."""
    return place in PASSED or ":" in place


class Actor(testing.actor.Actor):
    """One thread: stopped at a point, at its end, or on its way to one."""

    def runs_to(self, place: str) -> Self:
        """Go on until `place` is reached, and stop there."""
        while (reached := self._next()) != place:
            if reached is None:
                raise AssertionError(f"{self.name} ended before {place}: {self.error!r}")
        return self

    def finishes(self) -> Any:
        """Go on to the end. What the thread returned, or raises what it raised."""
        while not self.has_ended:
            self._next()
        if self.error is not None:
            raise self.error
        return self.result

    def is_between_points(self) -> bool:
        """It was resumed, and has reached no point since."""
        return self._reached.empty()

    def starts(self, error: Exception | None = None) -> Self:
        """Go on, or raise `error` where it is stopped, without waiting for the next point."""
        if self.waits_at not in (MOVES, ENDED):
            self.waits_at = MOVES
            self.go(error)
        return self

    def _next(self) -> str | None:
        before = self.waits_at
        if not self.starts().settled(TIMEOUT):
            raise AssertionError(f"{self.name} is stuck after {before}")
        return self.waits_at


class Interleaving:
    """Threads and their points. `log`: who reached which point, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._actors: dict[threading.Thread, Actor] = {}
        self._undo = ExitStack()

    def enter(self, name: str, call: Callable[[], Any]) -> Actor:
        """Start a thread. It stops at its first point."""
        actor = Actor(name, call)
        self._actors[actor.thread] = actor
        actor.start()
        return actor.starts()

    def __enter__(self) -> Self:
        self._undo.enter_context(points.installed(self._at_point))
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors.values():
            actor.set_free()
        for thread in self._actors:
            thread.join(TIMEOUT)
        self._undo.close()

    def _at_point(self, place: str, facts: Mapping[str, object]) -> None:
        actor = self._actors.get(threading.current_thread())
        if actor is not None and not is_passed(place):
            self.log.append(f"{actor.name} {place}")
            actor.stop_before(place)
