"""Driver: lets several calls take turns, and detects that a call waits for another one."""

import threading
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from typing import Any, NoReturn, Self
from weakref import WeakKeyDictionary

from django.db import DatabaseError, connections

from .actor import START, Actor
from .orders import make_call_name
from .probes import install_points
from .run import Run, Step, Stuck
from .timeline import format_timeline

#: Interval at which the driver checks whether a moving call has reached a step or is blocked.
POLL_INTERVAL_SECONDS = 0.002
#: A call that reaches no step for this time counts as blocked by something that the database does
#: not report: a lock in Redis, or any lock in a database other than PostgreSQL, MySQL and MariaDB.
#: While PostgreSQL executes a statement of the call, the driver waits for the statement instead.
BLOCKED_AFTER_SECONDS = 0.2
#: On a slow machine a call counts as blocked only after a longer time: the duration of the longest
#: step so far, multiplied by this number.
BLOCKED_AFTER_LONGEST_STEPS = 20
#: When a call is no longer blocked, it must reach a step within this time. Otherwise it counts as
#: blocked again.
WAKE_SECONDS = 10 * POLL_INTERVAL_SECONDS
#: Maximum number of characters of an exception in the timeline.
MAX_ERROR_CHARACTERS = 60
#: Maximum number of characters of a returned value in the timeline.
MAX_RESULT_CHARACTERS = 40
#: InnoDB refreshes its list of transactions only if no query has read it for 100 ms.
INNODB_POLL_INTERVAL_SECONDS = 0.11


class Driver:
    """Runs calls in threads, and gives them their turns in one order.

    A turn of a call is one step: the call runs from the point before the step to the point before
    its next step. A subclass may add steps: it calls `stop` in the thread that reaches such a step.
    It may override `wake` and `settle` to recognize other ways of waiting.
    """

    def __init__(
        self,
        calls: Sequence[Callable[[], Any]],
        *,
        at: Sequence[str],
        timeout: float,
        using: str,
    ) -> None:
        """Create a thread for each call without starting it.

        Args:
            calls: The callables; they are named `A`, `B`, and so on.
            at: Where the calls stop: `sql` and dotted names of functions.
            timeout: Seconds without any progress after which the calls count as stuck.
            using: The alias of the database that reports which call waits for another.
        """
        self._actors = {
            make_call_name(number): Actor(make_call_name(number), call)
            for number, call in enumerate(calls)
        }
        self._actors_by_thread: WeakKeyDictionary[threading.Thread, Actor] = WeakKeyDictionary()
        self._moving_actor: Actor | None = None
        self._longest_step_seconds = 0.0
        self._at = at
        self._timeout = timeout
        self._using = using
        self._next_innodb_poll_at = 0.0
        self._undo = ExitStack()
        self._run = Run()

    def __enter__(self) -> Self:
        """Install the points in `at`, and start the threads."""
        self._undo.enter_context(install_points(self.stop, self._at, self._record_connection))
        for actor in self._actors.values():
            self._actors_by_thread[actor.thread] = actor
            actor.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let all calls run to their ends and wait for them, then remove the points.

        The wait for each call is limited by the timeout.
        """
        for actor in self._actors.values():
            actor.set_free()
        for actor in self._actors.values():
            actor.thread.join(self._timeout)
        self._undo.close()

    def run(self, schedule: str, *, first: str = "") -> Run:
        """Give the calls the turns in `schedule`, then let each call run to its end.

        The turn of a call that waits or has ended is skipped. The schedule of the returned Run has
        only the turns that were taken.

        Args:
            schedule: The turns, such as `AABB`.
            first: The name of a call. After the schedule this call runs to its end first, and the
                other calls follow in order. Empty for `A`.

        Returns:
            The steps and the outcome of the calls.

        Raises:
            Stuck: No call moved within the timeout.
        """
        for name in schedule:
            self._give_turn(self._actors[name])
        actors = list(self._actors.values())
        if first:
            actors.remove(self._actors[first])
            actors.insert(0, self._actors[first])
        deadline = time.monotonic() + self._timeout
        while any(not actor.has_ended for actor in actors):
            running = [actor for actor in actors if not actor.has_ended]
            for actor in running:
                while not actor.has_ended and self._give_turn(actor):
                    deadline = time.monotonic() + self._timeout
            if time.monotonic() > deadline:
                self._raise_stuck(running)
        self._run.results = [actor.result for actor in self._actors.values()]
        self._run.errors = [actor.error for actor in self._actors.values()]
        return self._run

    def _raise_stuck(self, actors: Sequence[Actor]) -> NoReturn:
        """Raise Stuck, with the names of these actors and the timeline so far."""
        names = " and ".join(actor.name for actor in actors)
        raise Stuck(
            f"{names} did not move for {self._timeout:g} s. The timeline of {self._run.schedule} "
            f"so far:\n\n{format_timeline(self._run)}"
        )

    def _give_turn(self, actor: Actor) -> bool:
        """Give a turn to a call, record the turn, and return whether any call moved.

        The trace gets the call's name in upper case if the call made a step, and in lower case if
        it made no step but a blocked call continued.
        """
        run = self._run
        trace_before = run.trace
        turns_before = len(run.schedule)
        has_any_moved = self._advance(actor)
        if len(run.schedule) > turns_before:
            run.trace += actor.name
        elif has_any_moved:
            run.trace += actor.name.lower()
        run.turns.setdefault((trace_before, actor.name), run.trace)
        for any_actor in self._actors.values():
            if any_actor.has_ended:  # its turns move no call from now on
                run.turns[run.trace, any_actor.name] = run.trace
        return has_any_moved

    def _advance(self, actor: Actor) -> bool:
        """Let a call make one step, and let blocked calls go on if they can.

        Returns:
            Whether any call moved.
        """
        has_any_moved = False
        if not actor.has_ended and not actor.is_blocked:
            self._run.schedule += actor.name
            self._make_step(actor)
            has_any_moved = True
        for candidate in self._actors.values():
            # If `actor` was blocked by the step that it just made, it continues in a later turn.
            may_continue = candidate is not actor or not has_any_moved
            if candidate.is_blocked and may_continue:
                has_any_moved |= self.wake(candidate)
        return has_any_moved

    def _make_step(self, actor: Actor) -> None:
        """Let a call make its next step, and run until it reaches the following step.

        A call that has not started yet first runs to the point before its first step.
        """
        if actor.waits_at == START:
            has_reached_first_step = self._run_to_next_stop(actor)
            if not has_reached_first_step:
                return
        if not actor.has_ended:
            self._run.steps.append(Step(actor.name, str(actor.waits_at)))
            self._run_to_next_stop(actor)

    def _run_to_next_stop(self, actor: Actor) -> bool:
        """Let a call run. Return True once it reaches a step or its end, False if it blocks."""
        self._moving_actor = actor
        started_at = time.monotonic()
        actor.go()
        slow_machine_seconds = BLOCKED_AFTER_LONGEST_STEPS * self._longest_step_seconds
        has_reached_stop = self.settle(actor, max(BLOCKED_AFTER_SECONDS, slow_machine_seconds))
        self._moving_actor = None
        if has_reached_stop:
            step_seconds = time.monotonic() - started_at
            self._longest_step_seconds = max(self._longest_step_seconds, step_seconds)
        return has_reached_stop

    def wake(self, actor: Actor) -> bool:
        """Let a blocked call continue if it is no longer blocked.

        Args:
            actor: A call that is blocked.

        Returns:
            Whether the call reached its next step or its end.
        """
        if connections[self._using].vendor == "mysql":  # wait until _is_blocked() may query again
            time.sleep(max(0.0, self._next_innodb_poll_at - time.monotonic()))
        if self._is_blocked(actor):
            return False
        return self.settle(actor, WAKE_SECONDS)

    def settle(self, actor: Actor, blocked_after: float) -> bool:
        """Wait until a call has reached a step or its end, or is blocked.

        Args:
            actor: The call whose turn it is.
            blocked_after: Seconds without a step after which the call counts as blocked. The time
                starts again whenever PostgreSQL is seen to execute a statement of the call. But a
                call that reaches no step within the driver's timeout always counts as blocked.

        Returns:
            True if the call reached a step or its end, False if it is blocked.
        """
        blocked_at = time.monotonic() + blocked_after
        stuck_at = time.monotonic() + self._timeout
        while not actor.wait_until_settled(POLL_INTERVAL_SECONDS):
            if self._is_executing(actor):  # wait for the statement instead
                blocked_at = time.monotonic() + blocked_after
            if time.monotonic() > min(blocked_at, stuck_at) or self._is_blocked(actor):
                if not actor.is_blocked:
                    actor.is_blocked = True
                    self._run.steps.append(Step(actor.name, "", "waits"))
                return False
        if actor.has_ended:
            self._run.steps.append(_make_last_step(actor))
        return True

    def _is_blocked(self, actor: Actor) -> bool:
        """Return whether the database reports that a call waits for a lock.

        MySQL and MariaDB are queried at most once per INNODB_POLL_INTERVAL_SECONDS. Until the next
        query this returns False.
        """
        connection = connections[self._using]
        if not actor.connection_ids:
            return False
        if connection.vendor == "postgresql":
            return _is_blocked_in_postgresql(connection, actor.connection_ids)
        if connection.vendor == "mysql" and time.monotonic() >= self._next_innodb_poll_at:
            is_blocked = _is_blocked_in_innodb(connection, actor.connection_ids)
            self._next_innodb_poll_at = time.monotonic() + INNODB_POLL_INTERVAL_SECONDS
            return is_blocked
        return False

    def _is_executing(self, actor: Actor) -> bool:
        """Return whether PostgreSQL executes a statement of a call; False for other databases."""
        connection = connections[self._using]
        if not actor.connection_ids or connection.vendor != "postgresql":
            return False
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = ANY(%s) "
                "AND state = 'active')",
                [list(actor.connection_ids)],
            )
            (is_executing,) = cursor.fetchone()
        return bool(is_executing)

    @property
    def schedule(self) -> str:
        """The turns that were taken so far."""
        return self._run.schedule

    def current_actor(self) -> Actor | None:
        """Return the call that runs in the current thread; None outside all calls."""
        return self._actors_by_thread.get(threading.current_thread())

    def stop(self, text: str) -> None:
        """If a call runs in the current thread, stop it before a step.

        Args:
            text: The step, as it appears in the timeline.
        """
        actor = self.current_actor()
        if actor is None and self._moving_actor is not None:
            # The thread belongs to live_server: it serves a request of the call whose turn it is.
            actor = self._moving_actor
            self._actors_by_thread[threading.current_thread()] = actor
        if actor is not None:
            actor.stop_before(text)

    def _record_connection(self, connection_id: int) -> None:
        """Add the id of a new connection to the call that runs in the current thread.

        If the thread is unknown, it is a new thread of live_server, and serves the call whose turn
        it is.
        """
        actor = self.current_actor() or self._moving_actor
        if actor is not None:
            actor.connection_ids.add(connection_id)


def _make_last_step(actor: Actor) -> Step:
    """Return the step that shows how a call has ended: its exception or its return value."""
    if actor.error is not None:
        text = " ".join(f"{type(actor.error).__name__}: {actor.error}".split())
        return Step(actor.name, text[:MAX_ERROR_CHARACTERS], "raises")
    text = ""
    if actor.result is not None:
        text = repr(actor.result)[:MAX_RESULT_CHARACTERS]
    return Step(actor.name, text, "returns")


def _is_blocked_in_postgresql(connection: Any, process_ids: AbstractSet[int]) -> bool:
    """Return whether one of these processes of PostgreSQL waits for another process's lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT bool_or(pg_blocking_pids(pid) <> '{}') FROM unnest(%s::int[]) pid",
            [list(process_ids)],
        )
        (is_blocked,) = cursor.fetchone()
    return bool(is_blocked)


def _is_blocked_in_innodb(connection: Any, connection_ids: AbstractSet[int]) -> bool:
    """Return whether one of these connections waits for another connection's lock.

    Return False if the user of the database lacks the privilege PROCESS.
    """
    ids = ", ".join(str(int(connection_id)) for connection_id in connection_ids)
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM information_schema.innodb_trx "
                f"WHERE trx_state = 'LOCK WAIT' AND trx_mysql_thread_id IN ({ids})"
            )
            (waiting_count,) = cursor.fetchone()
    except DatabaseError:
        return False
    return bool(waiting_count)
