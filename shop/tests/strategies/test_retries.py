"""Optimistic strategies retry after a conflict with another writer, until a deadline."""

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

#: The receipt that a successful purchase of these tests returns.
RECEIPT = Receipt(order_id=1, sale_id=1, stock_seen=1)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between the tries of a purchase, in seconds.

    No test waits for them: retry_on_conflict() gets a clock that advances only by these pauses.
    """
    pauses: list[float] = []
    fake_time = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(conflict_retry, "time", fake_time)
    return pauses


def make_database_error(sqlstate: str | None) -> OperationalError:
    """Return a Django error whose cause is psycopg's error with this SQLSTATE.

    sqlstate  None: psycopg's error for a lost connection, which has no SQLSTATE
    """
    error = OperationalError("from a test")
    error.__cause__ = psycopg.errors.lookup(sqlstate)() if sqlstate else psycopg.OperationalError()
    return error


def make_failing_purchase(*errors: Exception) -> Callable[[Attempt], Receipt]:
    """Return a purchase with retries. Each try raises the next of `errors`; the last try sells."""
    remaining_errors = list(errors)

    def buy_once(attempt: Attempt) -> Receipt:
        if remaining_errors:
            raise remaining_errors.pop(0)
        return RECEIPT

    return retry_on_conflict(buy_once)


# --- the deadline -------------------------------------------------------------------------------


def test_number_of_tries_is_not_limited(pauses: list[float], settings: Settings) -> None:
    """A purchase sells after 200 conflicts, if SHOP_LOCK_WAIT allows the time for them.

    If 200 buyers buy at the same moment, some of them need 22 tries. With a limit on the number of
    tries they would get no unit, although units are left.
    """
    settings.SHOP_LOCK_WAIT = 1000.0
    purchase = make_failing_purchase(*[Conflict()] * 200)
    assert purchase(Attempt(APPLE, "ada")) is RECEIPT
    assert pauses[0] <= conflict_retry.FIRST_PAUSE_SECONDS
    assert conflict_retry.MAX_PAUSE_SECONDS / 2 < max(pauses) <= conflict_retry.MAX_PAUSE_SECONDS
    assert len(set(pauses)) == 200, "the pauses should be random"


def test_conflict_after_the_deadline_is_busy(pauses: list[float], settings: Settings) -> None:
    """After SHOP_LOCK_WAIT seconds of conflicts the purchase raises LockBusy."""
    settings.SHOP_LOCK_WAIT = 5.0
    purchase = make_failing_purchase(*[Conflict()] * 10_000)  # more than the deadline allows
    message = "gave up after repeated write conflicts; nothing was sold: retry with the same key"
    with pytest.raises(LockBusy, match=message) as caught:
        purchase(Attempt(APPLE, "ada"))
    assert isinstance(caught.value.__cause__, Conflict)
    assert 5.0 < sum(pauses) < 5.0 + conflict_retry.MAX_PAUSE_SECONDS


# --- conflicts and other errors -----------------------------------------------------------------


def test_only_conflicts_are_retried(pauses: list[float]) -> None:
    """A purchase retries after a serialization failure (40001) or a deadlock (40P01).

    After these errors the transaction is certainly rolled back. All other errors are raised at
    once, because after some of them the order may exist. The test tries a lost connection (None),
    an ended backend (57P01), two timeouts (55P03, 57014), and a commit whose outcome is unknown
    (40003).
    """
    for sqlstate in ("40001", "40P01"):
        purchase = make_failing_purchase(make_database_error(sqlstate))
        assert purchase(Attempt(APPLE, "ada")) is RECEIPT
    pauses.clear()
    for other_sqlstate in (None, "57P01", "55P03", "57014", "40003"):
        error = make_database_error(other_sqlstate)
        with pytest.raises(OperationalError) as caught:
            make_failing_purchase(error)(Attempt(APPLE, "ada"))
        assert caught.value is error
    assert pauses == []


# --- on PostgreSQL ------------------------------------------------------------------------------


@committed
def test_outage_after_a_conflict_is_unavailable_not_unknown(
    pauses: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The COMMIT fails with a conflict, and before the retry PostgreSQL is no longer reachable.

    A lost connection at a COMMIT would be `unknown`, because the order may exist. But the only
    COMMIT here failed with a conflict, so certainly no order exists.
    """
    open_sale(1)

    def raise_conflict() -> None:
        raise make_database_error("40001")

    def lose_postgresql(pause_seconds: float) -> None:
        """Run instead of the pause before the retry: PostgreSQL has no socket in `tmp_path`."""
        connection.close()
        monkeypatch.setitem(connection.settings_dict, "HOST", str(tmp_path))

    monkeypatch.setattr(connections["default"], "commit", raise_conflict)
    monkeypatch.setattr("shop.strategies.shared.conflict_retry.time.sleep", lose_postgresql)
    reply = buy(lock="serializable")
    monkeypatch.undo()
    assert_retry_later(
        reply,
        "unavailable",
        "the database does not answer; nothing was sold: retry with the same key",
    )
    assert count_orders_and_stock() == (0, 1)
