"""A lost update is found and shown, its repair passes, and a failure without a race is no race."""

import asyncio
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection, transaction

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
from testing.run import switches
from testing.tests import models
from testing.tests.models import (
    Sold,
    Stock,
    buy_plainly,
    buy_with_a_condition,
    one_unit,
    sold_once,
)

pytestmark = pytest.mark.usefixtures("_tables")
has_a_limit = pytest.mark.filterwarnings("ignore::testing.NotAllTried")


README = Path(__file__).resolve().parents[1] / "README.md"
TWO = [buy_with_a_condition, buy_with_a_condition]
Check = Callable[[Run], object]


def test_lost_update_is_shown_between_two_statements() -> None:
    with pytest.raises(InterleavingFailed, match="AssertionError: 2 orders for 1 unit") as failed:
        interleave(buy_plainly, buy_plainly, before=one_unit, check=sold_once)
    message = str(failed.value)
    assert (
        "Between A's\n    SELECT warehouse_stock WHERE id = 1\nand A's\n"
        "    UPDATE warehouse_stock SET amount = 0 WHERE id = 1\ncame\n"
        "    SELECT warehouse_stock WHERE id = 1    (B)\n"
        "    UPDATE warehouse_stock SET amount = 0 WHERE id = 1    (B)"
    ) in message
    assert re.search(r"in \d+ of \d+ orders that were tried\. There are 20\. The one with", message)


def test_conditional_update_passes_every_order_soon() -> None:
    """20 orders take about a second, and longer on a busy machine."""
    began = time.monotonic()
    runs = interleave(*TWO, before=one_unit, check=sold_once)
    assert time.monotonic() - began < 30
    assert len(runs) >= 6, "of 20, some of which come to the same turns"
    assert all(sorted(run.results) == [200, 409] for run in runs)
    assert any(step.text == "COMMIT" for step in runs[0].steps)


@has_a_limit
def test_buyer_who_waits_for_the_row_is_shown_waiting() -> None:
    def locked() -> int:
        with transaction.atomic():
            Stock.objects.select_for_update().get(pk=1)
            return buy_plainly()

    runs = interleave(locked, locked, before=one_unit, check=sold_once, limit=12)
    met = next(run for run in runs if run.schedule.startswith("AB"))
    assert [step.actor for step in met.steps if step.kind == "waits"] == ["B"]
    assert met.results == [200, 409]


def test_lock_outside_the_database_counts_as_waiting() -> None:
    lock = threading.Lock()

    def buy() -> int:
        with lock:
            return buy_plainly()

    runs = interleave(buy, buy, before=one_unit, check=sold_once)
    assert any(step.kind == "waits" for run in runs for step in run.steps)
    assert len(runs) < 18, "of 20"


def test_slow_statement_does_not_count_as_waiting() -> None:
    """Before its first statement, a call may count as waiting if its connection takes long."""

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
    def rows() -> None:
        one_unit()
        Stock.objects.create(pk=2, amount=1)

    def both(first: int, second: int) -> None:
        with transaction.atomic():
            for pk in (first, second):
                Stock.objects.select_for_update().get(pk=pk)

    with pytest.raises(InterleavingFailed, match="deadlock detected"):
        interleave(lambda: both(1, 2), lambda: both(2, 1), before=rows, limit=2)


def test_failure_in_serial_order_is_not_a_race() -> None:
    def sell_anyway() -> None:
        Sold.objects.create(buyer="somebody")

    with pytest.raises(InterleavingFailed, match="one after the other: this is not a race"):
        interleave(sell_anyway, sell_anyway, before=one_unit, check=sold_once)


def test_exception_fails_unless_it_is_expected() -> None:
    class SoldOut(Exception):
        pass

    def buy() -> None:
        if buy_with_a_condition() == 409:
            raise SoldOut("nothing left")

    runs = interleave(buy, buy, before=one_unit, expected=(SoldOut,))
    assert all(len([error for error in run.errors if error]) == 1 for run in runs)
    with pytest.raises(InterleavingFailed, match="SoldOut: nothing left"):
        interleave(buy, buy, before=one_unit)


@has_a_limit
def test_named_functions_and_steps_are_points() -> None:
    def buy() -> None:
        step("chosen")
        models.buy_plainly()

    call_name = f"{models.__name__}.buy_plainly"
    first, *_ = interleave(buy, buy, before=one_unit, at=["sql", call_name], limit=2)
    assert next(step.text for step in first.steps if step.actor == "A") == "chosen"
    runs = interleave(buy, buy, before=one_unit, at=[call_name], check=sold_once)
    texts = {step.text for run in runs for step in run.steps if step.kind == "step"}
    assert texts == {"chosen", "buy_plainly()"}


@has_a_limit
def test_three_calls_have_more_orders_and_a_limit() -> None:
    runs = interleave(*TWO, buy_with_a_condition, before=one_unit, check=sold_once, limit=12)
    assert 12 <= len(runs) <= 15
    assert all(sorted(run.results) == [200, 409, 409] for run in runs)


def outside_a_transaction() -> None:
    Stock.objects.select_for_update().get(pk=1)


async def buy_later() -> None:
    await Stock.objects.aget(pk=1)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: 500, NothingToInterleave, "call A reached no step and returned 500"),
        (outside_a_transaction, NothingToInterleave, "TransactionManagementError before its first"),
        (buy_later, ValueError, r"coroutine function.*asyncio\.run\(buy\(\)\)"),
        (lambda: buy_later(), ValueError, r"coroutine function.*asyncio\.run\(buy\(\)\)"),
    ],
)
def test_calls_that_cannot_be_interleaved_are_an_error_and_no_pass(
    call: Callable[[], object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        interleave(call, call, before=one_unit)


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
        interleave(call, call, before=one_unit, check=sold_once, limit=6)


def test_sold_out_is_answered_while_another_payment_fails() -> None:
    """A takes the unit, its payment is refused, and it rolls back, so that the unit is back."""

    class Refused(Exception):
        pass

    def buy(pays: bool) -> str:
        with transaction.atomic():
            free = Stock.objects.select_for_update(skip_locked=True).filter(pk=1, amount=1)
            if not free.exists():
                return "sold out"
            Stock.objects.filter(pk=1).update(amount=0)
            if not pays:
                raise Refused
            Sold.objects.create(buyer="somebody")
        return "sold"

    def check(run: Run) -> None:
        assert run.results[1] == "sold", "told sold out, and the unit is there"

    with pytest.raises(InterleavingFailed, match=r"told sold out(.|\n)*ROLLBACK"):
        interleave(
            lambda: buy(pays=False),
            lambda: buy(pays=True),
            before=one_unit,
            check=check,
            expected=(Refused,),
        )


def test_whatever_a_check_raises_comes_with_the_timeline() -> None:
    def check(run: Run) -> None:
        Sold.objects.get()

    with pytest.raises(InterleavingFailed, match=r"MultipleObjectsReturned(.|\n)*Between A's"):
        interleave(buy_plainly, buy_plainly, before=one_unit, check=check)


def raise_failed(run: Run) -> None:
    if Sold.objects.count() > 1:
        pytest.fail("two orders")


def raise_nothing(run: Run) -> None:
    if Sold.objects.count() > 1:
        with pytest.raises(LookupError):
            pass


def raise_exit(run: Run) -> None:
    if Sold.objects.count() > 1:
        raise SystemExit("two orders")


def raise_generator_exit(run: Run) -> None:
    if Sold.objects.count() > 1:
        raise GeneratorExit("two orders")


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (raise_failed, "Failed: two orders"),
        (raise_nothing, "Failed: DID NOT RAISE"),
        (raise_exit, "SystemExit: two orders"),
        (raise_generator_exit, "GeneratorExit: two orders"),
    ],
)
def test_check_may_fail_with_a_base_exception(check: Check, message: str) -> None:
    """The order counts as failed, later orders are run, and the timeline is shown."""
    with pytest.raises(InterleavingFailed, match=rf"^{message}(.|\n)*Between [AB]'s") as failed:
        interleave(buy_plainly, buy_plainly, before=one_unit, check=check)
    count = re.search(r"in (\d+) of (\d+) orders", str(failed.value))
    assert count is not None
    assert int(count[1]) > 1


def test_keyboard_interrupt_in_check_ends_everything() -> None:
    def check(run: Run) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interleave(*TWO, before=one_unit, check=check)


def test_check_that_returns_false_fails() -> None:
    """Otherwise a check without an assert would pass for every shop."""
    message = "AssertionError: check returned False: use assert, or return nothing"
    with pytest.raises(InterleavingFailed, match=f"^{message}"):
        interleave(
            buy_plainly, buy_plainly, before=one_unit, check=lambda run: Sold.objects.count() == 1
        )
    interleave(*TWO, before=one_unit, check=lambda run: Sold.objects.count() == 1)


async def check_later(run: Run) -> None:
    raise AssertionError("never awaited")


def test_coroutine_function_as_check_or_before_is_refused() -> None:
    """Its assertions would never run."""
    with pytest.raises(ValueError, match="check is a coroutine function"):
        interleave(*TWO, before=one_unit, check=check_later)
    with pytest.raises(ValueError, match="before is a coroutine function"):
        interleave(*TWO, before=buy_later)


def test_stuck_calls_are_shown_as_a_timeline() -> None:
    """A holds the lock and waits for B's event, and B waits for A's lock."""
    lock = threading.Lock()
    is_over = threading.Event()

    def hold() -> None:
        with lock:
            Stock.objects.count()
            is_over.wait(30)

    def ask() -> None:
        Stock.objects.get(pk=1)
        with lock:
            is_over.set()

    try:
        with pytest.raises(Stuck, match=r"^A and B did not move for 3 s\. .*AB") as stuck:
            interleave(hold, ask, before=one_unit, timeout=3)
    finally:
        is_over.set()
        for thread in threading.enumerate():
            if thread.name.startswith("interleaved-"):
                thread.join(20)
    lines = [line.rstrip() for line in str(stuck.value).splitlines()]
    column = " " * len("SELECT warehouse_stock WHERE id = 1  ")
    assert "    SELECT warehouse_stock" in lines
    assert f"    {column}SELECT warehouse_stock WHERE id = 1" in lines
    assert lines[-1].strip() == "(waits)"
    assert "Step(" not in str(stuck.value)


def test_simplest_failure_is_shown_as_in_the_readme() -> None:
    """A slow machine may try fewer orders after the first failure."""
    with pytest.raises(InterleavingFailed) as failed:
        interleave(buy_plainly, buy_plainly, before=one_unit, check=sold_once)
    message = str(failed.value).rstrip()
    assert "The one with the fewest switches, ABBBAA:" in message
    numbers = r"\d+ of \d+ orders"
    assert re.sub(numbers, "", message) in re.sub(numbers, "", README.read_text())


def test_serial_failure_of_several_steps_is_no_race() -> None:
    def sell_anyway() -> None:
        Stock.objects.get(pk=1)
        Sold.objects.create(buyer="somebody")

    with pytest.raises(InterleavingFailed, match=r"AABB:(.|\n)*this is not a race"):
        interleave(sell_anyway, sell_anyway, before=one_unit, check=sold_once)


def test_equal_orders_are_counted_once() -> None:
    """Orders in which a call waits lead to the same turns. Two calls of three steps have 20."""

    def locked() -> int:
        with transaction.atomic():
            Stock.objects.select_for_update().get(pk=1)
            return buy_plainly()

    def check(run: Run) -> None:
        assert run.results != [200, 409], "A was first"

    with pytest.raises(InterleavingFailed) as failed:
        interleave(locked, locked, before=one_unit, check=check)
    count = re.search(r"in (\d+) of (\d+) orders", str(failed.value))
    assert count is not None
    # A goes first, and B comes after one of its five steps: five orders, and five where B does. A
    # busy machine sees a wait a poll later, which is another order. Uncounted there are 252.
    assert int(count[1]) <= 10
    assert int(count[2]) <= 20


def test_runs_are_in_the_order_of_their_switches() -> None:
    runs = interleave(*TWO, before=one_unit, check=sold_once)
    numbers = [switches(run.schedule) for run in runs]
    assert numbers == sorted(numbers)
    assert runs[0].is_serial
    assert runs[1].is_serial


def test_limit_of_orders_is_announced() -> None:
    with pytest.warns(NotAllTried, match=r"^\d of 20 orders were tried: increase limit=6"):
        interleave(*TWO, before=one_unit, limit=6)


def test_time_limit_reports_how_many_orders_were_tried() -> None:
    with pytest.warns(NotAllTried, match=r"^4 of 20 orders were tried in 0 s: increase within="):
        runs = interleave(*TWO, before=one_unit, within=0)
    assert len(runs) == 4


def test_exception_of_a_call_is_one_line_of_the_timeline() -> None:
    def fails() -> None:
        Stock.objects.count()
        raise RuntimeError("first line\nsecond line")

    with pytest.raises(InterleavingFailed, match="raises RuntimeError: first line second line"):
        interleave(fails, fails, before=one_unit)


def test_single_call_and_hidden_rows_are_errors() -> None:
    with pytest.raises(ValueError, match="at least two calls"):
        interleave(lambda: None)
    with transaction.atomic(), pytest.raises(ValueError, match="transactional_db"):
        interleave(one_unit, one_unit)


def test_no_thread_or_connection_is_left() -> None:
    interleave(Stock.objects.count, Stock.objects.count, before=one_unit)
    assert not [thread for thread in threading.enumerate() if "interleaved" in thread.name]
    deadline = time.monotonic() + 10
    while connections_here() > 1:  # a backend ends a moment after its connection
        assert time.monotonic() < deadline, "a thread has left its connection open"
        time.sleep(0.01)
    assert not connection.execute_wrappers


def connections_here() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])
