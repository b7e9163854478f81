"""Tests of `interleave`: which orders it runs, what it reports as a race, and what it refuses.

interleave() runs several calls (A, B, ...) once for each possible order of their steps. An order,
or schedule, is a word such as AABB. Each letter is a turn of the call with that name, in which the
call makes one step, usually one SQL statement.
"""

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction
from psycopg import sql

from testing import (
    InterleavingFailed,
    NotAllTried,
    NothingToInterleave,
    Run,
    Stuck,
    interleave,
    step,
)
from testing.driver import BLOCKED_AFTER_SECONDS
from testing.probes import install_points
from testing.run import count_switches
from testing.tests import models
from testing.tests.models import (
    Sold,
    Stock,
    buy_plainly,
    buy_with_a_condition,
    check_sold_once,
    reset_to_one_unit,
)

pytestmark = pytest.mark.usefixtures("_tables")
#: For a test in which a limit keeps interleave() from trying all orders.
ignores_untried_orders = pytest.mark.filterwarnings("ignore::testing.NotAllTried")


README = Path(__file__).resolve().parents[1] / "README.md"
TWO_CORRECT_BUYS = [buy_with_a_condition, buy_with_a_condition]
Check = Callable[[Run], object]


def test_lost_update_is_shown_between_two_statements() -> None:
    with pytest.raises(InterleavingFailed, match="AssertionError: 2 orders for 1 unit") as failure:
        interleave(buy_plainly, buy_plainly, before=reset_to_one_unit, check=check_sold_once)
    message = str(failure.value)
    assert (
        "Between A's\n    SELECT warehouse_stock WHERE id = 1\nand A's\n"
        "    UPDATE warehouse_stock SET amount = 0 WHERE id = 1\ncame\n"
        "    SELECT warehouse_stock WHERE id = 1    (B)\n"
        "    UPDATE warehouse_stock SET amount = 0 WHERE id = 1    (B)"
    ) in message
    assert re.search(r"in \d+ of \d+ orders that were tried\. There are 20\. The one with", message)


def test_conditional_update_passes_in_every_order() -> None:
    """The 20 orders take about a second. The bound of 30 s is generous, for a busy machine."""
    started_at = time.monotonic()
    runs = interleave(*TWO_CORRECT_BUYS, before=reset_to_one_unit, check=check_sold_once)
    assert time.monotonic() - started_at < 30
    # The second call begins after one, two or three steps of the first call, and either call may be
    # first. That makes six orders. Orders that lead to the same turns are run once.
    assert len(runs) >= 6
    assert all(sorted(run.results) == [200, 409] for run in runs)
    assert any(step.text == "COMMIT" for step in runs[0].steps)


def lock_row_and_buy() -> int:
    """Buy a unit in five steps: lock, read, update, insert, COMMIT. Return an HTTP status."""
    with transaction.atomic():
        Stock.objects.select_for_update().get(pk=1)
        return buy_plainly()


@ignores_untried_orders
def test_timeline_shows_that_a_buyer_waits_for_the_row() -> None:
    """The limit may be low, because interleave() always runs an order that begins with AB."""
    runs = interleave(
        lock_row_and_buy,
        lock_row_and_buy,
        before=reset_to_one_unit,
        check=check_sold_once,
        limit=12,
    )
    run = next(run for run in runs if run.schedule.startswith("AB"))
    assert [step.actor for step in run.steps if step.kind == "waits"] == ["B"]
    assert run.results == [200, 409]


def test_timeline_shows_a_wait_outside_the_database() -> None:
    """A call that reaches no step for BLOCKED_AFTER_SECONDS counts as waiting."""
    lock = threading.Lock()  # the database cannot report who waits for it

    def buy() -> int:
        with lock:
            return buy_plainly()

    runs = interleave(buy, buy, before=reset_to_one_unit, check=check_sold_once)
    assert any(step.kind == "waits" for run in runs for step in run.steps)
    # There are 20 schedules, but the turns of a waiting call are skipped. So several schedules
    # lead to the same turns, and only one of them is run.
    assert len(runs) < 18  # clearly fewer than 20


def test_slow_statement_does_not_count_as_waiting() -> None:
    """A call whose statement is slow, but waits for no lock, does not count as waiting.

    The test ignores the time before the first statement: a call that still connects to the
    database may count as waiting.
    """

    def sleep() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s)", [2 * BLOCKED_AFTER_SECONDS])

    for run in interleave(sleep, sleep):
        kinds_by_actor = {
            actor: [step.kind for step in run.steps if step.actor == actor] for actor in "AB"
        }
        for kinds in kinds_by_actor.values():
            statement_and_after = kinds[kinds.index("step") :]
            assert "waits" not in statement_and_after, run.steps


def test_deadlock_is_reported_as_the_error_of_one_call() -> None:
    """The deadlock occurs in one of the first orders, which interleave() runs despite the limit."""

    def create_two_rows() -> None:
        reset_to_one_unit()
        Stock.objects.create(pk=2, amount=1)

    def lock_rows(*keys: int) -> None:
        with transaction.atomic():
            for key in keys:
                Stock.objects.select_for_update().get(pk=key)

    with pytest.raises(InterleavingFailed, match="deadlock detected"):
        interleave(
            lambda: lock_rows(1, 2), lambda: lock_rows(2, 1), before=create_two_rows, limit=2
        )


def test_failure_in_serial_order_is_not_a_race() -> None:
    """In a serial order one call ends before the other begins."""

    def sell_anyway() -> None:
        Sold.objects.create(buyer="somebody")

    with pytest.raises(InterleavingFailed, match="one after the other: this is not a race"):
        interleave(sell_anyway, sell_anyway, before=reset_to_one_unit, check=check_sold_once)


def test_exception_fails_unless_it_is_expected() -> None:
    class SoldOut(Exception):
        pass

    def buy() -> None:
        if buy_with_a_condition() == 409:
            raise SoldOut("nothing left")

    runs = interleave(buy, buy, before=reset_to_one_unit, expected=(SoldOut,))
    assert all(len([error for error in run.errors if error]) == 1 for run in runs)
    with pytest.raises(InterleavingFailed, match="SoldOut: nothing left"):
        interleave(buy, buy, before=reset_to_one_unit)


@ignores_untried_orders
def test_call_stops_at_steps_and_at_listed_functions() -> None:
    """A call stops at each `step()`, and before each call of a function that `at` lists."""

    def buy() -> None:
        step("chosen")
        models.buy_plainly()

    call_name = f"{models.__name__}.buy_plainly"
    first_run, *_ = interleave(buy, buy, before=reset_to_one_unit, at=["sql", call_name], limit=2)
    assert next(step.text for step in first_run.steps if step.actor == "A") == "chosen"
    runs = interleave(buy, buy, before=reset_to_one_unit, at=[call_name], check=check_sold_once)
    texts = {step.text for run in runs for step in run.steps if step.kind == "step"}
    assert texts == {"chosen", "buy_plainly()"}


READ_AMOUNT = sql.SQL("SELECT {} FROM {} WHERE id = {}").format(
    sql.Identifier("amount"), sql.Identifier("warehouse_stock"), sql.Placeholder()
)


@pytest.mark.parametrize(
    "statement",
    [
        READ_AMOUNT,
        sql.SQL("SELECT amount FROM warehouse_stock WHERE id = %s"),
        b"SELECT amount FROM warehouse_stock WHERE id = %s",
    ],
)
def test_call_stops_before_statements_of_every_type(statement: Any) -> None:
    def read() -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement, [1])
            return int(cursor.fetchone()[0])

    first_run, *_ = interleave(read, read, before=reset_to_one_unit)
    assert first_run.results == [1, 1]
    texts = {step.text for step in first_run.steps if step.kind == "step"}
    assert texts == {"SELECT warehouse_stock WHERE id = 1"}


@ignores_untried_orders
def test_limit_bounds_the_orders_of_three_calls() -> None:
    runs = interleave(
        *TWO_CORRECT_BUYS,
        buy_with_a_condition,
        before=reset_to_one_unit,
        check=check_sold_once,
        limit=12,
    )
    # interleave() first runs a few orders to count the turns of each call. They do not count
    # towards the limit, so there may be up to three more runs.
    assert 12 <= len(runs) <= 15
    assert all(sorted(run.results) == [200, 409, 409] for run in runs)


def lock_outside_a_transaction() -> None:
    """Fail before the first statement: Django refuses select_for_update() without a transaction."""
    Stock.objects.select_for_update().get(pk=1)


async def buy_async() -> None:
    await Stock.objects.aget(pk=1)


def read_and_return_a_coroutine() -> Awaitable[None]:
    Stock.objects.get(pk=1)
    return buy_async()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: 500, NothingToInterleave, "call A reached no step and returned 500"),
        (
            lock_outside_a_transaction,
            NothingToInterleave,
            "TransactionManagementError before its first",
        ),
        (buy_async, ValueError, r"coroutine function.*asyncio\.run\(buy\(\)\)"),
        (lambda: buy_async(), ValueError, r"coroutine function.*asyncio\.run\(buy\(\)\)"),
        (read_and_return_a_coroutine, ValueError, "call A is a coroutine function"),
    ],
)
def test_calls_that_cannot_be_interleaved_are_refused(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        interleave(call, call, before=reset_to_one_unit)


def test_asyncio_calls_are_interleaved_in_separate_threads() -> None:
    async def buy() -> None:
        stock = await Stock.objects.aget(pk=1)
        if stock.amount:
            stock.amount -= 1
            await stock.asave()
            await Sold.objects.acreate(buyer="somebody")

    def call() -> None:
        asyncio.run(buy())

    with pytest.raises(InterleavingFailed, match="2 orders for 1 unit"):
        interleave(call, call, before=reset_to_one_unit, check=check_sold_once, limit=6)


def test_wrong_answer_before_a_rollback_is_found() -> None:
    """B gets the answer "sold out" while A has the unit. But A's payment fails, so A rolls back."""

    class PaymentRefused(Exception):
        pass

    def buy(pays: bool) -> str:
        with transaction.atomic():
            stock = Stock.objects.select_for_update(skip_locked=True).filter(pk=1, amount=1)
            if not stock.exists():
                return "sold out"
            Stock.objects.filter(pk=1).update(amount=0)
            if not pays:
                raise PaymentRefused
            Sold.objects.create(buyer="somebody")
        return "sold"

    def check(run: Run) -> None:
        assert run.results[1] == "sold", "B should get the unit"

    with pytest.raises(InterleavingFailed, match=r"B should get the unit(.|\n)*ROLLBACK"):
        interleave(
            lambda: buy(pays=False),
            lambda: buy(pays=True),
            before=reset_to_one_unit,
            check=check,
            expected=(PaymentRefused,),
        )


def test_exception_of_a_check_is_shown_with_the_timeline() -> None:
    """The check expects one sold unit. If there are two, get() raises MultipleObjectsReturned."""

    def check(run: Run) -> None:
        Sold.objects.get()

    with pytest.raises(InterleavingFailed, match=r"MultipleObjectsReturned(.|\n)*Between A's"):
        interleave(buy_plainly, buy_plainly, before=reset_to_one_unit, check=check)


def fail_in_pytest_raises() -> None:
    """Fail in the way of pytest.raises() around a block that raises nothing."""
    with pytest.raises(LookupError):
        pass


def raise_error(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        (lambda: pytest.fail("two orders"), "Failed: two orders"),
        (fail_in_pytest_raises, "Failed: DID NOT RAISE"),
        (lambda: raise_error(SystemExit("two orders")), "SystemExit: two orders"),
        (lambda: raise_error(GeneratorExit("two orders")), "GeneratorExit: two orders"),
    ],
)
def test_check_may_fail_with_a_base_exception(fail: Callable[[], None], message: str) -> None:
    """The order counts as failed, later orders are still run, and the timeline is shown.

    Base exceptions matter here, because pytest.fail() and pytest.raises() raise them.
    """

    def check(run: Run) -> None:
        if Sold.objects.count() > 1:
            fail()

    with pytest.raises(InterleavingFailed, match=rf"^{message}(.|\n)*Between [AB]'s") as failure:
        interleave(buy_plainly, buy_plainly, before=reset_to_one_unit, check=check)
    failed_count = re.search(r"in (\d+) of \d+ orders", str(failure.value))
    assert failed_count is not None
    assert int(failed_count[1]) > 1


def test_keyboard_interrupt_in_check_ends_everything() -> None:
    def check(run: Run) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interleave(*TWO_CORRECT_BUYS, before=reset_to_one_unit, check=check)


def test_check_that_returns_false_fails() -> None:
    """A check that returns False probably lacks an `assert`. A check that returns True passes."""
    message = "AssertionError: check returned False: use assert, or return nothing"
    with pytest.raises(InterleavingFailed, match=f"^{message}"):
        interleave(
            buy_plainly,
            buy_plainly,
            before=reset_to_one_unit,
            check=lambda run: Sold.objects.count() == 1,
        )
    interleave(
        *TWO_CORRECT_BUYS, before=reset_to_one_unit, check=lambda run: Sold.objects.count() == 1
    )


async def check_async(run: Run) -> None:
    raise AssertionError("never awaited")


def test_coroutine_function_as_check_or_before_is_refused() -> None:
    """The coroutine would never be awaited, so every order would pass."""
    with pytest.raises(ValueError, match="check is a coroutine function"):
        interleave(*TWO_CORRECT_BUYS, before=reset_to_one_unit, check=check_async)
    with pytest.raises(ValueError, match="before is a coroutine function"):
        interleave(*TWO_CORRECT_BUYS, before=buy_async)


class AsyncCheck:
    """A check that Python does not recognize as a coroutine function."""

    async def __call__(self, run: Run) -> None:
        await check_async(run)


@pytest.mark.parametrize(
    "check", [lambda run: check_async(run), AsyncCheck(), sync_to_async(check_sold_once)]
)
@pytest.mark.filterwarnings("error")
def test_check_that_returns_a_coroutine_is_refused(check: Check) -> None:
    with pytest.raises(ValueError, match="check is a coroutine function"):
        interleave(*TWO_CORRECT_BUYS, before=reset_to_one_unit, check=check)


@pytest.mark.filterwarnings("error")
def test_before_that_returns_a_coroutine_is_refused() -> None:
    with pytest.raises(ValueError, match="before is a coroutine function"):
        interleave(*TWO_CORRECT_BUYS, before=lambda: buy_async())


def test_stuck_calls_are_shown_as_a_timeline() -> None:
    """A releases the lock only after B has acquired it, so both are stuck."""
    lock = threading.Lock()
    b_has_locked = threading.Event()

    def hold_lock() -> None:
        with lock:
            Stock.objects.count()
            b_has_locked.wait(30)

    def take_lock() -> None:
        Stock.objects.get(pk=1)
        with lock:
            b_has_locked.set()

    try:
        with pytest.raises(Stuck, match=r"^A and B did not move for 3 s\. .*AB") as stuck:
            interleave(hold_lock, take_lock, before=reset_to_one_unit, timeout=3)
    finally:
        b_has_locked.set()
        for thread in threading.enumerate():
            if thread.name.startswith("interleaved-"):
                thread.join(20)
    lines = [line.rstrip() for line in str(stuck.value).splitlines()]
    empty_column = " " * len("SELECT warehouse_stock WHERE id = 1  ")
    assert "    SELECT warehouse_stock" in lines
    assert f"    {empty_column}SELECT warehouse_stock WHERE id = 1" in lines
    assert lines[-1].strip() == "(waits)"
    assert "Step(" not in str(stuck.value)


def test_simplest_failure_is_shown_as_in_the_readme() -> None:
    """Only the counts may differ: a slow machine tries fewer orders after the first failure."""
    with pytest.raises(InterleavingFailed) as failure:
        interleave(buy_plainly, buy_plainly, before=reset_to_one_unit, check=check_sold_once)
    message = str(failure.value).rstrip()
    assert "The one with the fewest switches, ABBBAA:" in message
    counts = r"\d+ of \d+ orders"
    assert re.sub(counts, "", message) in re.sub(counts, "", README.read_text())


def test_serial_failure_of_calls_with_two_steps_is_not_a_race() -> None:
    """Every order fails, even AABB, in which one call follows the other."""

    def sell_anyway() -> None:
        Stock.objects.get(pk=1)
        Sold.objects.create(buyer="somebody")

    with pytest.raises(InterleavingFailed, match=r"AABB:(.|\n)*this is not a race"):
        interleave(sell_anyway, sell_anyway, before=reset_to_one_unit, check=check_sold_once)


def test_equal_orders_are_counted_once() -> None:
    """Two calls of five steps have 252 schedules, but only ten different orders of their steps.

    If A goes first, B begins after one of A's five steps and then waits for A's row lock. These are
    five orders. There are five more in which B goes first. The check fails if A was first.
    """

    def check(run: Run) -> None:
        assert run.results != [200, 409], "A was first"

    with pytest.raises(InterleavingFailed) as failure:
        interleave(lock_row_and_buy, lock_row_and_buy, before=reset_to_one_unit, check=check)
    counts = re.search(r"in (\d+) of (\d+) orders", str(failure.value))
    assert counts is not None
    failed_count, tried_count = int(counts[1]), int(counts[2])
    # The bounds are twice the correct counts (5 and 10): on a busy machine a wait may be noticed
    # one turn later, which makes another order.
    assert failed_count <= 10
    assert tried_count <= 20


def test_runs_are_sorted_by_their_number_of_switches() -> None:
    runs = interleave(*TWO_CORRECT_BUYS, before=reset_to_one_unit, check=check_sold_once)
    switch_counts = [count_switches(run.schedule) for run in runs]
    assert switch_counts == sorted(switch_counts)
    assert runs[0].is_serial
    assert runs[1].is_serial


def test_reached_limit_of_orders_is_a_warning() -> None:
    with pytest.warns(NotAllTried, match=r"^\d of 20 orders were tried: increase limit=6"):
        interleave(*TWO_CORRECT_BUYS, before=reset_to_one_unit, limit=6)


def test_limit_of_zero_still_runs_the_first_orders() -> None:
    """interleave() runs four orders in any case, to count the turns of each call."""
    with pytest.warns(NotAllTried, match=r"^4 of 20 orders were tried: increase limit=0"):
        interleave(*TWO_CORRECT_BUYS, before=reset_to_one_unit, limit=0)


def test_time_limit_reports_how_many_orders_were_tried() -> None:
    """interleave() runs four orders in any case, to count the turns of each call."""
    with pytest.warns(NotAllTried, match=r"^4 of 20 orders were tried in 0 s: increase within="):
        runs = interleave(*TWO_CORRECT_BUYS, before=reset_to_one_unit, within=0)
    assert len(runs) == 4


def test_exception_of_a_call_is_one_line_of_the_timeline() -> None:
    def read_and_fail() -> None:
        Stock.objects.count()
        raise RuntimeError("first line\nsecond line")

    with pytest.raises(InterleavingFailed, match="raises RuntimeError: first line second line"):
        interleave(read_and_fail, read_and_fail, before=reset_to_one_unit)


def test_single_call_and_open_transaction_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two calls"):
        interleave(lambda: None)
    with transaction.atomic(), pytest.raises(ValueError, match="transactional_db"):
        interleave(reset_to_one_unit, reset_to_one_unit)


def test_no_thread_or_connection_is_left() -> None:
    interleave(Stock.objects.count, Stock.objects.count, before=reset_to_one_unit)
    assert not [thread for thread in threading.enumerate() if "interleaved" in thread.name]
    deadline = time.monotonic() + 10
    while count_connections() > 1:  # PostgreSQL needs a moment to notice a closed connection
        assert time.monotonic() < deadline, "each thread should close its connection"
        time.sleep(0.01)
    assert not connection.execute_wrappers


def test_connection_that_is_opened_again_is_reported() -> None:
    """A call closes its connection and connects again. Both connections are reported by their id.

    interleave() needs the ids to notice that a call waits for a lock in the database.
    """
    backend_pids: list[int] = []
    stops: list[str] = []

    def reconnect() -> None:
        for _ in range(2):
            Stock.objects.count()
            connection.close()

    with install_points(stops.append, ["sql"], backend_pids.append):
        thread = threading.Thread(target=reconnect)
        thread.start()
        thread.join()
    assert len(set(backend_pids)) == 2
    assert stops == ["SELECT warehouse_stock"] * 2


def count_connections() -> int:
    """Return the number of connections to the database of this test."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])
