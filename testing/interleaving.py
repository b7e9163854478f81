"""Runs calls in every order of their steps, with a fresh state for each order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import connections

from .driver import Driver
from .errors import InterleavingFailed, NothingToInterleave
from .orders import count, name_of, orders
from .probes import SQL
from .run import Run
from .timeline import between, timeline


def interleave(
    *calls: Callable[[], Any],
    before: Callable[[], object] | None = None,
    check: Callable[[Run], object] | None = None,
    at: Sequence[str] = (SQL,),
    expected: tuple[type[Exception], ...] = (),
    limit: int = 200,
    timeout: float = 10.0,
    using: str = "default",
) -> list[Run]:
    """Run the calls in every order of their steps. Returns a Run for each order, simplest first.

    calls     two or more; each runs in a thread and on a connection of its own
    before    called before each order: makes the state that the calls begin with
    check     called after each order with its Run; raises AssertionError if the state is wrong
    at        where a call may lose its turn: "sql" (before each statement and COMMIT), and dotted
              names of functions (before each call of it); `step(name)` in a call counts always
    expected  what a call may raise; anything else is a failure of that order
    limit     orders at most, those with the fewest switches first
    timeout   seconds until a call that does not move is given up
    using     the database that is asked who waits for whom

    InterleavingFailed shows the order with the fewest switches as a timeline and names the steps
    between which the other call came in. NothingToInterleave: a call came by no step. ValueError:
    fewer than two calls, or a test whose transaction hides the state from other threads.
    """
    __tracebackhide__ = True  # pytest shows the test's own line, and the message
    if len(calls) < 2:
        raise ValueError("interleave needs two calls at least: interleave(buy, buy)")
    if connections[using].in_atomic_block:
        raise ValueError(
            "this test runs in a transaction, which hides its rows from the threads: use the "
            "fixture transactional_db, or django_db(transaction=True)"
        )
    runs: list[Run] = []
    failures: list[tuple[Run, BaseException]] = []

    def run(schedule: str) -> Run:
        if before is not None:
            before()
        with Driver(calls, at=at, timeout=timeout, using=using) as driver:
            done = driver.run(schedule)
        runs.append(done)
        try:
            _raise_what_is_not_expected(done, expected)
            if check is not None:
                check(done)
        except AssertionError as error:
            failures.append((done, error))
        except _Unexpected as error:
            failures.append((done, error.error))
        return done

    steps = _steps_of_each(run, len(calls))
    total = count(steps)
    serial = {done.schedule for done in runs}
    for schedule in orders(steps, limit):
        if schedule not in serial:
            run(schedule)
    if failures:
        _fail(runs, failures, total)
    return runs


class _Unexpected(Exception):
    def __init__(self, error: BaseException) -> None:
        self.error = error


def _raise_what_is_not_expected(run: Run, expected: tuple[type[Exception], ...]) -> None:
    for error in run.errors:
        if error is not None and not isinstance(error, expected):
            raise _Unexpected(error) from error


def _steps_of_each(run: Callable[[str], Run], calls: int) -> list[int]:
    """How many turns each call needs: measured one after another, every call once the first.

    A call that comes second may find the last unit sold, and need fewer turns; the most count.
    """
    names = [name_of(number) for number in range(calls)]
    most = dict.fromkeys(names, 0)
    for first in names:
        done = run("".join([first, *(name for name in names if name != first)]))
        for name in names:
            most[name] = max(most[name], done.schedule.count(name))
            if not any(step.actor == name and step.kind == "step" for step in done.steps):
                raise NothingToInterleave(
                    f"call {name} came by no step: it sends no statement to a database of Django's "
                    "and calls no function that `at` names"
                )
    return list(most.values())


def _fail(runs: list[Run], failures: list[tuple[Run, BaseException]], total: int) -> None:
    __tracebackhide__ = True
    run, error = failures[0]
    tried = f"{len(runs)} of {total} orders" if len(runs) < total else f"{len(runs)} orders"
    serial = (
        "It fails without any interleaving, one call after the other: this is no race.\n"
        if run.is_serial
        else between(run) + "\n"
    )
    raise InterleavingFailed(
        f"{type(error).__name__}: {error}\n"
        f"after {len(failures)} of {tried}. The one with the fewest switches, {run.schedule}:\n\n"
        f"{timeline(run)}\n\n{serial}"
    ) from error
