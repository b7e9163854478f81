"""Buyers in their own threads, which stop at the points of a purchase until the test resumes them.

Points are named places in the code of a purchase, such as `after_read` (shop/sale/points.py). A
thread stops at each of them, except at the SKIPPED_POINTS and at the points inside a lock.

    with Interleaving() as run:
        a = run.start("A", buy_the_last_one)
        a.run_to("after_read")      # A has read, and is stopped there
        b = run.start("B", buy_the_last_one)
        b.finish()                  # all of B happens now
        a.finish()

So the test alone decides the order of the steps, without sleeping and without chance.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Self

import testing.actor
from shop.sale import points
from testing.actor import ENDED

#: Points at which no thread stops. Each of them is close to a point at which threads stop.
SKIPPED_POINTS = {"arrives", "begins", "reserve", "acquire", "release", "released"}
#: Time limit for a thread to reach its next point.
TIMEOUT_SECONDS = 15.0
#: The value of `waits_at` while a thread is on its way to the next point.
MOVING = "on its way"


def is_skipped(point: str) -> bool:
    """Return whether threads do not stop at this point of a purchase.

    A point is a named place in the code. Threads skip the SKIPPED_POINTS and the points inside a
    lock, whose names contain a colon.
    """
    return point in SKIPPED_POINTS or ":" in point


class StoppingActor(testing.actor.Actor):
    """A thread that a test moves from point to point of a purchase.

    The thread is stopped at a point, on its way to the next point (`waits_at` is MOVING), or has
    ended.
    """

    def run_to(self, point: str) -> Self:
        """Resume the thread, and wait until it stops at `point`."""
        reached_point = self._run_to_next_point()
        while reached_point != point:
            if reached_point is ENDED:
                raise AssertionError(f"{self.name} ended before {point}: {self.error!r}")
            reached_point = self._run_to_next_point()
        return self

    def finish(self) -> Any:
        """Let the thread run to its end. Return its return value, or raise its exception."""
        while not self.has_ended:
            self._run_to_next_point()
        if self.error is not None:
            raise self.error
        return self.result

    def resume(self, error: Exception | None = None) -> Self:
        """Resume the thread, if it is stopped, and return at once.

        error  an exception that the thread raises at its current point
        """
        is_stopped = self.waits_at not in (MOVING, ENDED)
        if is_stopped:
            self.waits_at = MOVING
            self.go(error)
        return self

    def _run_to_next_point(self) -> str | None:
        """Resume the thread, wait for its next point, and return the point. None if it ends."""
        previous_point = self.waits_at
        if not self.resume().wait_until_settled(TIMEOUT_SECONDS):
            raise AssertionError(f"{self.name} is stuck after {previous_point}")
        return self.waits_at


class Interleaving:
    """Threads that stop at points of a purchase until the test resumes them.

    `log` lists their stops in order, such as "A after_read". When the block ends, all threads run
    to their ends without further stops.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self._actors: dict[threading.Thread, StoppingActor] = {}
        self._cleanup = ExitStack()

    def start(self, name: str, call: Callable[[], Any]) -> StoppingActor:
        """Start a thread that makes this call, and return its actor at once.

        The thread runs until the first point of its purchase, and stops there.

        name  the name of the thread in `log`
        """
        actor = StoppingActor(name, call)
        self._actors[actor.thread] = actor
        actor.start()
        return actor.resume()  # without this, the thread would wait before its call

    def __enter__(self) -> Self:
        self._cleanup.enter_context(points.use_probe(self._handle_point))
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors.values():
            actor.set_free()
        for thread in self._actors:
            thread.join(TIMEOUT_SECONDS)
        self._cleanup.close()

    def _handle_point(self, point: str, fields: Mapping[str, object]) -> None:
        """Log a point that a thread has reached, and stop the thread there, unless it is skipped.

        This is called at each point of a purchase. A point is a named place in its code.
        """
        actor = self._actors.get(threading.current_thread())
        if actor is not None and not is_skipped(point):
            self.log.append(f"{actor.name} {point}")
            actor.stop_before(point)
