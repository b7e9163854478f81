"""The strategy `autocommit` loses units, because it commits each write by itself.

It loses a unit if the buyer crashes between the two writes, or repeats a request.
"""

import pytest

from shop.sale import purchase
from shop.tests.purchases import buy, committed, count_orders_and_stock, open_sale

pytestmark = committed


class Crash(Exception):
    """Stands for a crash of the process in the middle of a purchase."""


def raise_crash(*_: object) -> None:
    raise Crash


@pytest.mark.parametrize(("lock", "stock_left"), [("none", 2), ("autocommit", 1)])
def test_crash_loses_a_unit_only_without_a_transaction(
    lock: str, stock_left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buyer crashes after the write of the stock, and before the write of the order.

    Under `none` both writes are one transaction, which is rolled back.
    """
    open_sale(2, lock=lock)
    monkeypatch.setattr(purchase, "record_order", raise_crash)
    with pytest.raises(Crash):
        buy(lock=lock)
    assert count_orders_and_stock() == (0, stock_left)


def test_repeated_autocommit_purchase_takes_another_unit() -> None:
    """The second request is answered with the first order, but also decrements the stock.

    Only the insert of the second order fails, because the Idempotency-Key already has an order. The
    decrement is committed by then. So one order is left, and two of the three units are gone.
    """
    open_sale(3, lock="autocommit")
    first = buy(lock="autocommit", key="k1")
    retry = buy(lock="autocommit", key="k1")
    assert (retry.status, retry.body["order"]) == (200, first.body["order"])
    assert count_orders_and_stock() == (1, 1)
