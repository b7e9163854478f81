"""Tests of `rush`, which makes many calls at the same time, and returns an Outcome.

`returned` of the outcome has the return values of the calls, `raised` their exceptions.
"""

import threading
from collections.abc import Callable

import pytest

from testing import rush
from testing.tests.models import Sold, Stock, buy_with_a_condition


@pytest.mark.usefixtures("_tables")
def test_rush_with_a_conditional_update_is_exact() -> None:
    """Twelve calls want five units. So five get status 200, and seven 409."""
    Stock.objects.create(pk=1, amount=5)
    outcome = rush(buy_with_a_condition, 12)
    assert sorted(outcome.returned) == [200] * 5 + [409] * 7
    assert (Sold.objects.count(), Stock.objects.get().amount) == (5, 0)
    assert 0 <= outcome.spread < 30  # seconds between the first start and the last


@pytest.mark.usefixtures("_tables")
def test_all_calls_of_a_rush_can_read_before_any_of_them_writes() -> None:
    """After its read, each of four calls waits until the other three have read, too.

    So all four sell the only unit.
    """
    Stock.objects.create(pk=1, amount=1)
    all_have_read = threading.Barrier(4)

    def buy() -> int:
        stock = Stock.objects.get(pk=1)
        all_have_read.wait(10)
        stock.amount -= 1
        stock.save()
        return Sold.objects.create(buyer="somebody").pk

    assert len(rush(buy, 4).returned) == 4
    assert (Sold.objects.count(), Stock.objects.get().amount) == (4, 0)


def test_rush_passes_each_call_its_number() -> None:
    assert sorted(rush(lambda number: number, 5).returned) == [0, 1, 2, 3, 4]


def test_exceptions_are_part_of_the_outcome() -> None:
    def call(number: int) -> int:
        return 1 // number

    outcome = rush(call, 3)
    assert [type(error) for error in outcome.raised] == [ZeroDivisionError]
    assert sorted(outcome.returned) == [0, 1]


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, KeyboardInterrupt])
def test_base_exception_of_a_call_counts_as_raised(error: type[BaseException]) -> None:
    def call(number: int) -> str:
        if number == 3:
            raise error("error page")
        return "ok"

    outcome = rush(call, 5)
    assert [type(exception) for exception in outcome.raised] == [error]
    assert outcome.returned == ["ok"] * 4


def test_failed_assertion_of_pytest_counts_as_raised() -> None:
    outcome = rush(lambda number: pytest.fail("error page") if number == 3 else "ok", 5)
    assert [str(error) for error in outcome.raised] == ["error page"]
    assert outcome.returned == ["ok"] * 4


def test_calls_that_hang_are_counted() -> None:
    """Call 0 returns, and call 1 waits longer than the timeout."""
    is_over = threading.Event()
    try:
        with pytest.raises(AssertionError, match=r"1 of 2 calls have not ended within 3 s"):
            rush(lambda number: is_over.wait(20) if number else None, 2, timeout=3)
    finally:
        is_over.set()


def test_rush_without_calls_is_an_error() -> None:
    with pytest.raises(ValueError, match="n must be at least 1, not 0"):
        rush(int, 0)


async def buy_async() -> int:
    return 200


@pytest.mark.parametrize("call", [buy_async, lambda: buy_async(), lambda number: buy_async()])
@pytest.mark.filterwarnings("error")
def test_coroutine_function_is_refused(call: Callable[..., object]) -> None:
    """The coroutine would never be awaited, so nothing would be bought."""
    with pytest.raises(ValueError, match=r"coroutine function.*asyncio\.run\(buy\(\)\)"):
        rush(call, 3)


def test_calls_that_do_not_start_in_time_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The barrier that releases all calls at once reports a timeout."""

    def wait(barrier: threading.Barrier, timeout: float) -> int:
        raise threading.BrokenBarrierError

    monkeypatch.setattr(threading.Barrier, "wait", wait)
    with pytest.raises(AssertionError, match=r"2 of 2 calls have not started within 30 s"):
        rush(lambda number: number, 2)
