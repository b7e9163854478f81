"""The optimistic strategies retry after a conflict until a deadline."""

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
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of a retry in seconds. The clock of the retry advances only by these pauses."""
    sleeps: list[float] = []
    time = SimpleNamespace(monotonic=lambda: sum(sleeps), sleep=sleeps.append)
    monkeypatch.setattr(conflict_retry, "time", time)
    return sleeps


def make_database_error(sqlstate: str | None) -> OperationalError:
    """Return a Django error whose cause is psycopg's error with this SQLSTATE.

    sqlstate  None: psycopg's error for a lost connection, which has no SQLSTATE
    """
    error = OperationalError("from a test")
    error.__cause__ = psycopg.errors.lookup(sqlstate)() if sqlstate else psycopg.OperationalError()
    return error


def make_failing_purchase(*errors: Exception) -> Callable[[Attempt], Receipt]:
    """Return a purchase that fails with `errors`, one for each attempt, and then sells."""
    remaining_errors = list(errors)

    def buy_once(attempt: Attempt) -> Receipt:
        if remaining_errors:
            raise remaining_errors.pop(0)
        return RECEIPT

    return retry_on_conflict(buy_once)


# --- the deadline -------------------------------------------------------------------------------


def test_only_the_deadline_ends_the_attempts(sleeps: list[float], settings: Settings) -> None:
    """A limit on the attempts would undersell: in a rush of 200 buyers some need 22 attempts."""
    settings.SHOP_LOCK_WAIT = 1000.0
    purchase = make_failing_purchase(*[Conflict()] * 200)
    assert purchase(Attempt(APPLE, "ada")) is RECEIPT
    assert sleeps[0] <= conflict_retry.FIRST_PAUSE_SECONDS
    assert conflict_retry.MAX_PAUSE_SECONDS / 2 < max(sleeps) <= conflict_retry.MAX_PAUSE_SECONDS
    assert len(set(sleeps)) == 200, "the pauses are random"


def test_expired_deadline_is_busy(sleeps: list[float], settings: Settings) -> None:
    settings.SHOP_LOCK_WAIT = 5.0
    purchase = make_failing_purchase(*[Conflict()] * 10_000)  # more than the deadline allows
    message = "gave up after repeated write conflicts; nothing was sold: retry with the same key"
    with pytest.raises(LockBusy, match=message) as caught:
        purchase(Attempt(APPLE, "ada"))
    assert isinstance(caught.value.__cause__, Conflict)
    assert 5.0 < sum(sleeps) < 5.0 + conflict_retry.MAX_PAUSE_SECONDS


# --- conflicts and other errors -----------------------------------------------------------------


def test_only_conflicts_are_retried(sleeps: list[float]) -> None:
    """After a serialization failure (40001) or a deadlock (40P01) no order exists.

    After some of the other errors the order may exist. They are a lost connection (None), an ended
    backend (57P01), timeouts (55P03, 57014), and a commit whose outcome is unknown (40003).
    """
    for sqlstate in ("40001", "40P01"):
        purchase = make_failing_purchase(make_database_error(sqlstate))
        assert purchase(Attempt(APPLE, "ada")) is RECEIPT
    sleeps.clear()
    for other_sqlstate in (None, "57P01", "55P03", "57014", "40003"):
        error = make_database_error(other_sqlstate)
        with pytest.raises(OperationalError) as caught:
            make_failing_purchase(error)(Attempt(APPLE, "ada"))
        assert caught.value is error
    assert sleeps == []


# --- on PostgreSQL ------------------------------------------------------------------------------


@committed
def test_outage_after_a_conflict_is_unavailable_not_unknown(
    sleeps: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The COMMIT fails with a conflict, and PostgreSQL stops before the retry.

    After a conflict no order exists, so the outcome is known.
    """
    open_sale(1)

    def raise_conflict() -> None:
        raise make_database_error("40001")

    def lose_postgresql(seconds: float) -> None:
        connection.close()
        monkeypatch.setitem(connection.settings_dict, "HOST", str(tmp_path))

    monkeypatch.setattr(connections["default"], "commit", raise_conflict)
    monkeypatch.setattr("shop.strategies.shared.conflict_retry.time.sleep", lose_postgresql)
    answer = buy(lock="serializable")
    monkeypatch.undo()
    assert_retry_later(
        answer,
        "unavailable",
        "the database does not answer; nothing was sold: retry with the same key",
    )
    assert count_orders_and_stock() == (0, 1)
