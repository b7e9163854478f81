"""The optimistic strategies: again after a conflict, until a deadline; never after a doubt."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from django.db import OperationalError, connection, connections
from pytest_django import Settings

from shop.errors import LockBusy
from shop.sale.purchase import Attempt, Receipt
from shop.strategies.shared import conflict_retry
from shop.strategies.shared.conflict_retry import Conflict, retry_on_conflict
from shop.tests.purchases import (
    APPLE,
    assert_retry_later,
    buy,
    committed,
    count_orders_and_stock,
    open_sale,
)

RECEIPT = Receipt(order_id=1, sale_id=1, stock_seen=1)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were slept: nothing else advances the time."""
    slept: list[float] = []
    time = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(conflict_retry, "time", time)
    return slept


def database_error(sqlstate: str | None) -> OperationalError:
    """Return an error as Django raises it, with psycopg's error as its cause."""
    error = OperationalError("from a test")
    error.__cause__ = psycopg.errors.lookup(sqlstate)() if sqlstate else psycopg.OperationalError()
    return error


def failing(*errors: Exception) -> Callable[[Attempt], Receipt]:
    """A purchase that fails with each of `errors` in turn and then sells."""
    left = list(errors)

    def buy_once(attempt: Attempt) -> Receipt:
        if left:
            raise left.pop(0)
        return RECEIPT

    return retry_on_conflict(buy_once)


# --- the deadline -------------------------------------------------------------------------------


def test_tries_end_with_the_wait_and_have_no_maximum(
    slept: list[float], settings: Settings
) -> None:
    """200 buyers need up to 22 tries; a cap of 5 sold 70 of 100 units."""
    settings.SHOP_LOCK_WAIT = 1000.0
    assert failing(*[Conflict()] * 200)(Attempt(APPLE, "ada")) is RECEIPT
    assert slept[0] <= conflict_retry.FIRST_PAUSE_SECONDS
    assert conflict_retry.MAX_PAUSE_SECONDS / 2 < max(slept) <= conflict_retry.MAX_PAUSE_SECONDS
    assert len(set(slept)) == 200, "the pauses are random"


def test_when_the_wait_is_over_the_answer_is_busy(slept: list[float], settings: Settings) -> None:
    settings.SHOP_LOCK_WAIT = 5.0
    buying = failing(*[Conflict()] * 10_000)
    message = "gave up after repeated write conflicts; nothing was sold: retry with the same key"
    with pytest.raises(LockBusy, match=message) as caught:
        buying(Attempt(APPLE, "ada"))
    assert isinstance(caught.value.__cause__, Conflict)
    assert 5.0 < sum(slept) < 5.0 + conflict_retry.MAX_PAUSE_SECONDS


# --- what is a conflict, and what is not --------------------------------------------------------


def test_only_conflicts_are_retried(
    slept: list[float],
) -> None:
    """After a lost connection, for example, the order may exist."""
    for sqlstate in ("40001", "40P01"):
        assert failing(database_error(sqlstate))(Attempt(APPLE, "ada")) is RECEIPT
    slept.clear()
    for other in (None, "57P01", "55P03", "57014", "40003"):
        error = database_error(other)
        with pytest.raises(OperationalError) as caught:
            failing(error)(Attempt(APPLE, "ada"))
        assert caught.value is error
    assert slept == []


# --- the same on PostgreSQL ---------------------------------------------------------------------


@committed
def test_after_a_conflict_at_the_commit_nothing_is_in_doubt(
    slept: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL goes away between the two tries: the first one certainly sold nothing."""
    open_sale(1)

    def conflict() -> None:
        raise database_error("40001")

    def go_away(seconds: float) -> None:
        connection.close()
        monkeypatch.setitem(connection.settings_dict, "HOST", str(tmp_path))

    monkeypatch.setattr(connections["default"], "commit", conflict)
    monkeypatch.setattr("shop.strategies.shared.conflict_retry.time.sleep", go_away)
    answer = buy(lock="serializable")
    monkeypatch.undo()
    assert_retry_later(
        answer,
        "unavailable",
        "the database does not answer; nothing was sold: retry with the same key",
    )
    assert count_orders_and_stock() == (0, 1)
