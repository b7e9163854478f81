"""`interleave`: runs calls in every order of their steps, with a fresh state for each order."""

import time
import warnings
from collections.abc import Callable, Sequence
from inspect import isawaitable, iscoroutinefunction
from itertools import islice
from typing import Any

from django.db import connections

from .awaitables import refuse_awaitables
from .driver import Driver
from .orders import CompletedOrders, count_orders, generate_orders, make_call_name
from .probes import SQL
from .run import InterleavingFailed, NotAllTried, NothingToInterleave, Run, count_switches
from .timeline import explain_race, format_timeline

#: After the first failure, further orders are tried for this time. The share of orders that fail
#: shows how rare the race is.
SEARCH_SECONDS_AFTER_FAILURE = 5.0
#: Messages of the ValueError about a coroutine function; {} is the name of the call or argument.
ASYNC_CALL_MESSAGE = (
    "call {} is a coroutine function, which interleave would not await: pass "
    "`lambda: asyncio.run(buy())`, or asgiref's async_to_sync(buy)"
)
ASYNC_ARGUMENT_MESSAGE = (
    "{} is a coroutine function, which interleave would not await: pass a plain function"
)
Check = Callable[[Run], object]


def interleave(
    *calls: Callable[[], Any],
    before: Callable[[], object] | None = None,
    check: Check | None = None,
    at: Sequence[str] = (SQL,),
    expected: tuple[type[Exception], ...] = (),
    limit: int = 200,
    within: float = 60.0,
    timeout: float = 10.0,
    using: str = "default",
    driver: Callable[..., Driver] = Driver,
) -> list[Run]:
    """Run the calls in every order of their steps.

    Args:
        *calls: Two or more callables. Each runs in its own thread and on its own connection.
        before: Called before each order, to create the state that the calls start from.
        check: Called after each order with its Run, to raise if the state is wrong. The order
            fails if `check` returns False or raises any exception except KeyboardInterrupt. The
            exceptions of `pytest.fail` and `pytest.skip` count, too.
        at: Where a call may stop and another call may go on: `sql` (before each statement, COMMIT
            and ROLLBACK) and dotted names of functions (before each call of the function). A call
            may always stop at `step(name)`.
        expected: Exceptions that a call may raise. Any other exception makes the order fail.
        limit: The maximum number of orders, not counting the few that measure how many turns each
            call needs. The orders with the fewest switches between calls come first.
        within: Seconds after which no further order is begun.
        timeout: Seconds without any progress after which the calls count as stuck.
        using: The alias of the database that reports which call waits for another.
        driver: Creates the driver of each order, with the arguments of Driver. Pass a subclass of
            Driver to detect ways of waiting that Driver does not detect.

    Returns:
        The runs, those with the fewest switches first.

    Raises:
        InterleavingFailed: An order failed. The message shows the failed order with the fewest
            switches as a timeline, and the two steps between which another call wrote.
        Stuck: No call moved for `timeout` seconds. The message shows the timeline so far.
        NothingToInterleave: A call reached no step.
        ValueError: There are fewer than two calls; a call, `before` or `check` is a coroutine
            function or returns an awaitable; or the transaction of the test hides the state from
            other threads.

    Warns:
        NotAllTried: Some orders were not tried, because of `limit` or `within`.
    """
    __tracebackhide__ = True  # pytest shows the test's own line, and the message
    _require_calls(calls)
    _refuse_coroutine_functions(before=before, check=check)
    _require_no_transaction(using)
    search = _Search()

    def run_order(schedule: str, first: str = "") -> Run:
        if before is not None:
            refuse_awaitables([before()], ASYNC_ARGUMENT_MESSAGE.format("before"))
        with driver(calls, at=at, timeout=timeout, using=using) as order_driver:
            run = order_driver.run(schedule, first=first)
        _refuse_awaitable_results(run)
        search.add(run, _find_error(run, check, expected))
        return run

    deadline = time.monotonic() + within
    turn_counts = _measure_turns(run_order, len(calls))
    order_count = count_orders(turn_counts)
    is_out_of_time = False
    for schedule in islice(generate_orders(turn_counts), max(limit, 0)):
        if search.has_run(schedule):
            continue
        if search.failures:
            deadline = min(deadline, time.monotonic() + SEARCH_SECONDS_AFTER_FAILURE)
        if time.monotonic() > deadline:
            is_out_of_time = True
            break
        run_order(schedule)
    if search.failures:
        _raise_simplest_failure(search, order_count)
    tried = f"{search.count_tried()} of {order_count:,} orders were tried"
    if is_out_of_time:
        message = f"{tried} in {within:g} s: increase within="
        warnings.warn(message, NotAllTried, stacklevel=2)
    elif search.count_tried() < order_count and limit < order_count:
        message = f"{tried}: increase limit={limit} to try all"
        warnings.warn(message, NotAllTried, stacklevel=2)
    return sorted(search.runs, key=_make_sort_key)


class _Search:
    """The orders of the calls' turns that were run so far, and the errors of failed orders."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.failures: list[tuple[Run, BaseException]] = []
        self._completed = CompletedOrders()

    def add(self, run: Run, error: BaseException | None) -> None:
        """Record a run, and the error that made it fail; None if it did not fail."""
        self.runs.append(run)
        self._completed.add(run)
        if error is not None:
            self.failures.append((run, error))

    def has_run(self, schedule: str) -> bool:
        """Return whether this schedule would repeat the turns of an order that was run."""
        return self._completed.would_repeat(schedule)

    def count_tried(self) -> int:
        """Return the number of different orders of the calls' turns that were run."""
        return len({run.schedule for run in self.runs})

    def count_failed(self) -> int:
        """Return the number of different orders of the calls' turns that failed."""
        return len({run.schedule for run, _ in self.failures})

    def find_simplest_failure(self) -> tuple[Run, BaseException]:
        """Return the failed run with the fewest switches, and its error."""
        return min(self.failures, key=lambda failure: _make_sort_key(failure[0]))


def _make_sort_key(run: Run) -> tuple[int, str]:
    """Return the sort key that puts the runs with the fewest switches first."""
    return count_switches(run.schedule), run.schedule


def _require_calls(calls: Sequence[Callable[[], Any]]) -> None:
    """Raise ValueError unless there are two calls or more, and none is a coroutine function."""
    if len(calls) < 2:
        raise ValueError("interleave needs at least two calls: interleave(buy, buy)")
    for number, call in enumerate(calls):
        if iscoroutinefunction(call):
            raise ValueError(ASYNC_CALL_MESSAGE.format(make_call_name(number)))


def _require_no_transaction(using: str) -> None:
    """Raise ValueError if this thread is in a transaction on the database with this alias."""
    if connections[using].in_atomic_block:
        raise ValueError(
            "this test runs in a transaction, which hides its rows from the threads: use the "
            "fixture transactional_db, or django_db(transaction=True)"
        )


def _refuse_coroutine_functions(**arguments: Callable[..., object] | None) -> None:
    """Raise ValueError if one of these arguments of `interleave` is a coroutine function."""
    for name, function in arguments.items():
        if iscoroutinefunction(function):
            raise ValueError(ASYNC_ARGUMENT_MESSAGE.format(name))


def _refuse_awaitable_results(run: Run) -> None:
    """Raise ValueError if a call of this run returned an awaitable."""
    for number, result in enumerate(run.results):
        if isawaitable(result):
            refuse_awaitables(run.results, ASYNC_CALL_MESSAGE.format(make_call_name(number)))


def _find_error(
    run: Run, check: Check | None, expected: tuple[type[Exception], ...]
) -> BaseException | None:
    """Return the error that makes a run fail, or None if the run passes.

    The error is an exception of a call that is not `expected`, an exception of the check, or an
    AssertionError if the check returned False. Raises ValueError if the check returned an
    awaitable.
    """
    for error in run.errors:
        if error is not None and not isinstance(error, expected):
            return error
    if check is None:
        return None
    try:
        verdict = check(run)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # pytest.fail raises a BaseException that is not an Exception
        return error
    refuse_awaitables([verdict], ASYNC_ARGUMENT_MESSAGE.format("check"))
    if verdict is False:
        return AssertionError("check returned False: use assert, or return nothing")
    return None


def _measure_turns(run_order: Callable[[str, str], Run], call_count: int) -> list[int]:
    """Return the maximum number of turns that each call needs, measured in a few orders.

    In the first orders the calls run one after another. Each call is first in one of them, because
    a later call may need fewer turns, for example if no unit is left for it. The other orders begin
    with one turn of each call, because a call that meets another may retry and need more turns.
    Raises NothingToInterleave if a call reaches no step.
    """
    names = [make_call_name(number) for number in range(call_count)]
    turns = dict.fromkeys(names, 0)
    for begins_with_a_turn_of_each_call in (False, True):
        for first in names:
            schedule = ""  # no switches: `first` runs to its end, and then the other calls
            if begins_with_a_turn_of_each_call:
                schedule = first + "".join(name for name in names if name != first)
            run = run_order(schedule, first)
            actors_with_steps = {step.actor for step in run.steps if step.kind == "step"}
            for number, name in enumerate(names):
                turns[name] = max(turns[name], run.schedule.count(name))
                if name not in actors_with_steps:
                    _raise_no_step(name, run.results[number], run.errors[number])
    return list(turns.values())


def _raise_no_step(name: str, result: object, error: BaseException | None) -> None:
    """Raise NothingToInterleave, which says why the call with this name reached no step.

    Args:
        name: The name of the call.
        result: The return value of the call.
        error: The exception of the call, if it raised one.
    """
    if error is not None:
        message = f"call {name} raised {type(error).__name__} before its first step: {error}"
        raise NothingToInterleave(message) from error
    raise NothingToInterleave(
        f"call {name} reached no step and returned {result!r:.60}: it sends no statement to a "
        "database of Django and calls no function named in `at`"
    )


def _raise_simplest_failure(search: _Search, order_count: int) -> None:
    """Raise InterleavingFailed, which shows the failed order with the fewest switches."""
    __tracebackhide__ = True
    run, error = search.find_simplest_failure()
    tried_count = search.count_tried()
    total_sentence = ""
    if tried_count < order_count:
        total_sentence = f" There are {order_count:,}."
    explanation = explain_race(run)
    if run.is_serial:
        explanation = "It fails when the calls run one after the other: this is not a race."
    raise InterleavingFailed(
        f"{type(error).__name__}: {error}\n"
        f"in {search.count_failed()} of {tried_count} orders that were tried.{total_sentence} "
        f"The one with the fewest switches, {run.schedule}:\n\n"
        f"{format_timeline(run)}\n\n{explanation}\n"
    ) from error
