"""The consequences if the writes of a purchase are not one transaction."""

import pytest

from shop.sale import purchase
from shop.tests.purchases import buy, committed, count_orders_and_stock, open_sale

pytestmark = committed


class Died(Exception):
    """The end of a process, in the middle of a purchase."""


def die(*_: object) -> None:
    raise Died


@pytest.mark.parametrize(("lock", "stock_left"), [("none", 2), ("autocommit", 1)])
def test_buyer_who_dies_between_the_writes(
    lock: str, stock_left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a transaction the unit is gone, and there is no order of it."""
    open_sale(2, lock=lock)
    monkeypatch.setattr(purchase, "record_order", die)
    with pytest.raises(Died):
        buy(lock=lock)
    assert count_orders_and_stock() == (0, stock_left)


def test_repeated_request_takes_another_unit() -> None:
    """The key gives the buyer the first order again; what was written before stays."""
    open_sale(3, lock="autocommit")
    first = buy(lock="autocommit", key="k1")
    again = buy(lock="autocommit", key="k1")
    assert (again.status, again.body["order"]) == (200, first.body["order"])
    assert count_orders_and_stock() == (1, 1)
