"""The cost of writes that are not one transaction: after a crash, and after a repeated request."""

import pytest

from shop.sale import purchase
from shop.tests.purchases import buy, committed, count_orders_and_stock, open_sale

pytestmark = committed


class Crash(Exception):
    """The end of a process in the middle of a purchase."""


def crash(*_: object) -> None:
    raise Crash


@pytest.mark.parametrize(("lock", "stock_left"), [("none", 2), ("autocommit", 1)])
def test_crash_loses_a_unit_only_without_a_transaction(
    lock: str, stock_left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buyer crashes between the write of the stock and the write of the order."""
    open_sale(2, lock=lock)
    monkeypatch.setattr(purchase, "record_order", crash)
    with pytest.raises(Crash):
        buy(lock=lock)
    assert count_orders_and_stock() == (0, stock_left)


def test_repeated_autocommit_purchase_takes_another_unit() -> None:
    """A repeated request gets the first order, but it has taken a second unit from the stock."""
    open_sale(3, lock="autocommit")
    first = buy(lock="autocommit", key="k1")
    again = buy(lock="autocommit", key="k1")
    assert (again.status, again.body["order"]) == (200, first.body["order"])
    assert count_orders_and_stock() == (1, 1)
