"""Buyers in their own threads, which stop at every point until the test resumes them.

    with Interleaving() as run:
        a = run.enter("A", buy_the_last_one)
        a.run_to("after_read")      # A has read, and is stopped there
        b = run.enter("B", buy_the_last_one)
        b.finish()                  # all of B happens now
        a.finish()

The test alone decides which step follows which: no sleep, and no luck.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Self

import testing.actor
from shop.sale import points
from testing.actor import ENDED

#: Points at which no thread stops: other points decide the order there.
SKIPPED_POINTS = {"arrives", "begins", "reserve", "acquire", "release", "released"}
#: Seconds until a thread that reaches no point is given up.
TIMEOUT_SECONDS = 15.0
#: The value of `waits_at` while a thread is on its way to the next point.
MOVING = "on its way"


def is_skipped(point: str) -> bool:
    """Return whether no thread stops at this point: one of SKIPPED_POINTS, or inside a lock."""
    return point in SKIPPED_POINTS or ":" in point


class StoppingActor(testing.actor.Actor):
    """A thread that is stopped at a point, on its way to one, or at its end."""

    def run_to(self, point: str) -> Self:
        """Resume until `point` is reached, and stop there."""
        reached = self._run_to_next_point()
        while reached != point:
            if reached is None:
                raise AssertionError(f"{self.name} ended before {point}: {self.error!r}")
            reached = self._run_to_next_point()
        return self

    def finish(self) -> Any:
        """Resume until the end. Return the thread's return value, or raise its exception."""
        while not self.has_ended:
            self._run_to_next_point()
        if self.error is not None:
            raise self.error
        return self.result

    def resume(self, error: Exception | None = None) -> Self:
        """Go on, or raise `error` at the current point, without waiting for the next point."""
        if self.waits_at not in (MOVING, ENDED):
            self.waits_at = MOVING
            self.go(error)
        return self

    def _run_to_next_point(self) -> str | None:
        previous_point = self.waits_at
        if not self.resume().wait_until_settled(TIMEOUT_SECONDS):
            raise AssertionError(f"{self.name} is stuck after {previous_point}")
        return self.waits_at


class Interleaving:
    """Threads and the points that they reach. `log` has `A after_read`, ... in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._actors: dict[threading.Thread, StoppingActor] = {}
        self._cleanup = ExitStack()

    def enter(self, name: str, call: Callable[[], Any]) -> StoppingActor:
        """Start a thread. It stops at its first point."""
        actor = StoppingActor(name, call)
        self._actors[actor.thread] = actor
        actor.start()
        return actor.resume()

    def __enter__(self) -> Self:
        self._cleanup.enter_context(points.installed(self._at_point))
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors.values():
            actor.set_free()
        for thread in self._actors:
            thread.join(TIMEOUT_SECONDS)
        self._cleanup.close()

    def _at_point(self, point: str, facts: Mapping[str, object]) -> None:
        actor = self._actors.get(threading.current_thread())
        if actor is not None and not is_skipped(point):
            self.log.append(f"{actor.name} {point}")
            actor.stop_before(point)
