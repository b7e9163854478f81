"""The curve of a sale: its stock over time, which the page draws."""

import pytest
from django.test import Client

from shop.models import PurchaseHistory
from shop.sale import reports
from shop.tests.purchases import buy, open_sale, rolled_back


@rolled_back
def test_curve_shows_times_and_stock_but_not_buyers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point of the curve has the seconds since the first purchase, and the stock.

    A purchase is drawn with the stock before it: 3, then 2. The curve has at most MAX_CURVE_POINTS
    points.
    """
    sale = open_sale(3)
    path = f"/sales/{sale.pk}/curve"
    assert Client().get(path).json() == {"sale": sale.pk, "curve": []}
    buy(buyer="ada", key="k1")
    buy(buyer="bob", key="k2")
    first_order, second_order = PurchaseHistory.objects.order_by("pk")
    seconds = (second_order.purchase_time - first_order.purchase_time).total_seconds()
    assert Client().get(path).json()["curve"] == [[0.0, 3], [seconds, 2]]
    monkeypatch.setattr(reports, "MAX_CURVE_POINTS", 1)
    assert len(Client().get(path).json()["curve"]) == 1


@rolled_back
def test_curve_of_an_unknown_sale_is_404() -> None:
    assert Client().get("/sales/0/curve").status_code == 404
