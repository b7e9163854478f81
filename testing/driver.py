"""Gives each call its turn, and sees who waits for whom."""

import threading
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from typing import Any, Self
from weakref import WeakKeyDictionary

from django.db import connections

from .actor import Actor
from .orders import name_of
from .probes import installed
from .run import Run, Step, Stuck

#: Seconds after which a call that moves is looked at: has it reached a step, or does it wait?
GLANCE = 0.002
#: Seconds without a step after which a call waits for something that the database knows nothing of:
#: a lock in Redis, or any lock of a database that cannot be asked. A slow machine has longer.
QUIET = 0.2
#: Waits for this many times the longest step so far, if that is more than QUIET.
SLOWEST_STEPS = 20


class Driver:
    """The calls of one order, each in a thread, and their points."""

    def __init__(
        self,
        calls: Sequence[Callable[[], Any]],
        *,
        at: Sequence[str],
        timeout: float,
        using: str,
    ) -> None:
        self._actors = {
            name_of(number): Actor(name_of(number), call) for number, call in enumerate(calls)
        }
        self._of_thread: WeakKeyDictionary[threading.Thread, Actor] = WeakKeyDictionary()
        self._moving: Actor | None = None
        self._longest = 0.0
        self._at, self._timeout, self._using = at, timeout, using
        self._undo = ExitStack()
        self._run = Run()

    def __enter__(self) -> Self:
        self._undo.enter_context(installed(self._stop, self._at, self._connected))
        for actor in self._actors.values():
            self._of_thread[actor.thread] = actor
            actor.start()
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors.values():
            actor.set_free()
        for actor in self._actors.values():
            actor.thread.join(self._timeout)
        self._undo.close()

    def run(self, schedule: str) -> Run:
        """Turns as in `schedule`, then those that have steps left, until all have ended.

        A turn of a call that waits, or has ended, is passed over. The Run's schedule is the turns
        that were taken.
        """
        for name in schedule:
            self._take(self._actors[name])
        deadline = time.monotonic() + self._timeout
        while left := [actor for actor in self._actors.values() if not actor.has_ended]:
            for actor in left:
                while not actor.has_ended and self._take(actor):
                    deadline = time.monotonic() + self._timeout
            if time.monotonic() > deadline:
                names = " and ".join(actor.name for actor in left)
                raise Stuck(f"{names} did not move for {self._timeout:g} s: {self._run.steps}")
        self._run.results = [actor.result for actor in self._actors.values()]
        self._run.errors = [actor.error for actor in self._actors.values()]
        return self._run

    def _take(self, actor: Actor) -> bool:
        """A turn, and the trace of it. Returns whether anything moved."""
        run, before, taken = self._run, self._run.trace, len(self._run.schedule)
        moved = self._turn(actor)
        if len(run.schedule) > taken:
            run.trace += actor.name
        elif moved:
            run.trace += actor.name.lower()
        run.turns.setdefault((before, actor.name), run.trace)
        ended = [one.name for one in self._actors.values() if one.has_ended]
        run.turns |= {(run.trace, name): run.trace for name in ended}
        return moved

    def _turn(self, actor: Actor) -> bool:
        """Let this call do one step, and those go on that it unblocks. Returns whether anything
        moved."""
        moved = False
        if not actor.has_ended and not actor.is_blocked:
            self._run.schedule += actor.name
            self._move(actor)
            moved = True
        for other in self._actors.values():
            if other.is_blocked and (other is not actor or not moved):
                moved |= self._wake(other)
        return moved

    def _move(self, actor: Actor) -> None:
        """Let it do its next step, and go on to where it can stop before the one after."""
        if actor.waits_at == "start" and not self._go(actor):
            return
        if not actor.has_ended:
            self._run.steps.append(Step(actor.name, str(actor.waits_at)))
            self._go(actor)

    def _go(self, actor: Actor) -> bool:
        """Whether it reaches its next step or its end; False: it waits for somebody."""
        self._moving = actor
        began = time.monotonic()
        actor.go()
        reached = self._settle(actor, max(QUIET, SLOWEST_STEPS * self._longest))
        self._moving = None
        if reached:
            self._longest = max(self._longest, time.monotonic() - began)
        return reached

    def _wake(self, actor: Actor) -> bool:
        """Whether a call that waited has what it waited for, and reached its next step."""
        if _waits_in_the_database(actor.backends, self._using):
            return False
        return self._settle(actor, 10 * GLANCE)

    def _settle(self, actor: Actor, quiet: float) -> bool:
        """Until it has reached a step or its end (True), or waits for somebody (False)."""
        until = time.monotonic() + quiet
        while not actor.settled(GLANCE):
            if _waits_in_the_database(actor.backends, self._using) or time.monotonic() > until:
                if not actor.is_blocked:
                    actor.is_blocked = True
                    self._run.steps.append(Step(actor.name, "", "waits"))
                return False
        if actor.has_ended:
            self._run.steps.append(_end(actor))
        return True

    def _stop(self, text: str) -> None:
        """Called in any thread that reaches a step."""
        thread = threading.current_thread()
        actor = self._of_thread.get(thread)
        if actor is None and self._moving is not None:
            # A thread of live_server, which serves a request of the call that moves.
            actor = self._of_thread[thread] = self._moving
        if actor is not None:
            actor.stop_before(text)

    def _connected(self, backend: int) -> None:
        actor = self._of_thread.get(threading.current_thread()) or self._moving
        if actor is not None:
            actor.backends.add(backend)


def _end(actor: Actor) -> Step:
    if actor.error is not None:
        text = " ".join(f"{type(actor.error).__name__}: {actor.error}".split())
        return Step(actor.name, text[:60], "raises")
    return Step(actor.name, "" if actor.result is None else repr(actor.result)[:40], "returns")


def _waits_in_the_database(backends: AbstractSet[int], using: str) -> bool:
    """Whether PostgreSQL lets one of these processes wait for another one's lock."""
    connection = connections[using]
    if connection.vendor != "postgresql" or not backends:
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT bool_or(pg_blocking_pids(pid) <> '{}') FROM unnest(%s::int[]) pid",
            [list(backends)],
        )
        (waits,) = cursor.fetchone()
    return bool(waits)
