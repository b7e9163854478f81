"""Runs calls in every order of their steps, with a fresh state for each order."""

import time
import warnings
from collections.abc import Callable, Sequence
from inspect import iscoroutine, iscoroutinefunction
from itertools import pairwise
from typing import Any

from django.db import connections

from .driver import Driver
from .orders import Seen, count, name_of, orders
from .probes import SQL, WIDTH
from .run import InterleavingFailed, NotAllTried, NothingToInterleave, Run, Step

#: Seconds for which other orders are still tried when one has failed: how many fail says how rare
#: the race is.
AFTER_A_FAILURE = 5.0
ASYNC = (
    "call {} is a coroutine function, which interleave would not await: give it "
    "`lambda: asyncio.run(buy())`, or asgiref's async_to_sync(buy)"
)


def interleave(
    *calls: Callable[[], Any],
    before: Callable[[], object] | None = None,
    check: Callable[[Run], object] | None = None,
    at: Sequence[str] = (SQL,),
    expected: tuple[type[Exception], ...] = (),
    limit: int = 200,
    within: float = 60.0,
    timeout: float = 10.0,
    using: str = "default",
) -> list[Run]:
    """Run the calls in every order of their steps. Returns a Run for each order, simplest first.

    calls     two or more; each runs in a thread and on a connection of its own
    before    called before each order: makes the state that the calls begin with
    check     called after each order with its Run; raises if the state is wrong
    at        where a call may lose its turn: "sql" (before each statement, COMMIT and ROLLBACK),
              and dotted names of functions (before each call of it); `step(name)` counts always
    expected  what a call may raise; anything else is a failure of that order
    limit     orders at most, those with the fewest switches first
    within    seconds for all orders; NotAllTried warns of those that are left
    timeout   seconds until a call that does not move is given up
    using     the database that is asked who waits for whom

    InterleavingFailed shows the order with the fewest switches as a timeline and names the steps
    between which the other call came in. NothingToInterleave: a call came by no step, and why.
    ValueError: fewer than two calls, a coroutine function, or a test whose transaction hides the
    state from other threads.
    """
    __tracebackhide__ = True  # pytest shows the test's own line, and the message
    _require_calls(calls, using)
    runs: list[Run] = []
    failures: list[tuple[Run, BaseException]] = []
    seen = Seen()

    def run(schedule: str) -> Run:
        if before is not None:
            before()
        with Driver(calls, at=at, timeout=timeout, using=using) as driver:
            done = driver.run(schedule)
        runs.append(done)
        seen.add(done)
        errors = [error for error in done.errors if error is not None]
        wrong = [error for error in errors if not isinstance(error, expected)]
        try:
            if check is not None and not wrong:
                check(done)
        except Exception as error:  # whatever a check raises: with the timeline that led to it
            wrong = [error]
        failures.extend((done, error) for error in wrong[:1])
        return done

    ends = time.monotonic() + within
    steps = _steps_of_each(run, len(calls))
    total, left_out = count(steps), 0
    for schedule in orders(steps, limit):
        if seen.has(schedule):
            continue
        if failures:
            ends = min(ends, time.monotonic() + AFTER_A_FAILURE)
        if time.monotonic() > ends:
            left_out += 1
        else:
            run(schedule)
    if failures:
        _fail(runs, failures, total)
    if left_out:
        said = (
            f"{len(runs)} of {total:,} orders were tried in {within:g} s: give it more with within="
        )
        warnings.warn(said, NotAllTried, stacklevel=2)
    return runs


def _require_calls(calls: Sequence[Callable[[], Any]], using: str) -> None:
    if len(calls) < 2:
        raise ValueError("interleave needs two calls at least: interleave(buy, buy)")
    for number, call in enumerate(calls):
        if iscoroutinefunction(call):
            raise ValueError(ASYNC.format(name_of(number)))
    if connections[using].in_atomic_block:
        raise ValueError(
            "this test runs in a transaction, which hides its rows from the threads: use the "
            "fixture transactional_db, or django_db(transaction=True)"
        )


def _steps_of_each(run: Callable[[str], Run], calls: int) -> list[int]:
    """How many turns each call needs: measured one after another, every call once the first.

    A call that comes second may find the last unit sold, and need fewer turns; the most count.
    """
    names = [name_of(number) for number in range(calls)]
    most = dict.fromkeys(names, 0)
    for first in names:
        done = run("".join([first, *(name for name in names if name != first)]))
        stepped = {step.actor for step in done.steps if step.kind == "step"}
        for number, name in enumerate(names):
            most[name] = max(most[name], done.schedule.count(name))
            if name not in stepped:
                _refuse(name, done.results, done.errors[number])
    return list(most.values())


def _refuse(name: str, results: Sequence[Any], error: BaseException | None) -> None:
    """Say why a call came by no step."""
    result = results[ord(name) - ord("A")]
    if error is not None:
        said = f"call {name} raised {type(error).__name__} before its first step: {error}"
        raise NothingToInterleave(said) from error
    if iscoroutine(result):
        for one in filter(iscoroutine, results):
            one.close()
        raise ValueError(ASYNC.format(name))
    raise NothingToInterleave(
        f"call {name} came by no step, and returned {result!r:.60}: it sends no statement to a "
        "database of Django's and calls no function that `at` names"
    )


def _fail(runs: list[Run], failures: list[tuple[Run, BaseException]], total: int) -> None:
    __tracebackhide__ = True
    run, error = failures[0]
    more = f" There are {total:,}." if len(runs) < total else ""
    serial = (
        "It fails without any interleaving, one call after the other: this is no race.\n"
        if run.is_serial
        else between(run) + "\n"
    )
    raise InterleavingFailed(
        f"{type(error).__name__}: {error}\n"
        f"in {len(failures)} of {len(runs)} orders that were tried.{more} The one with the fewest "
        f"switches, {run.schedule}:\n\n{timeline(run)}\n\n{serial}"
    ) from error


def timeline(run: Run) -> str:
    """One line for each step, in the column of who did it."""
    actors = sorted({step.actor for step in run.steps})
    width = max([len(_text(step)) for step in run.steps] + [12])
    lines = ["  ".join(actor.ljust(width) for actor in actors).rstrip()]
    for step in run.steps:
        column = actors.index(step.actor) * (min(width, WIDTH + 12) + 2)
        lines.append(" " * column + _text(step))
    return "\n".join(f"    {line}" for line in lines)


def between(run: Run) -> str:
    """The two steps of one call between which another call wrote, and what it wrote; "" if none."""
    done = [step for step in run.steps if step.kind == "step"]
    for actor in sorted({step.actor for step in done}):
        own = [number for number, step in enumerate(done) if step.actor == actor]
        for one, two in pairwise(own):
            others = done[one + 1 : two]
            if any(not step.text.startswith("SELECT") for step in others):
                return (
                    f"Between {actor}'s\n    {done[one].text}\nand {actor}'s\n"
                    f"    {done[two].text}\ncame\n"
                    + "\n".join(f"    {step.text}    ({step.actor})" for step in others)
                )
    return ""


def _text(step: Step) -> str:
    return step.text if step.kind == "step" else f"({step.kind}{step.text and ' '}{step.text})"
