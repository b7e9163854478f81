"""POST /restock: a new sale, while the old one and its orders stay."""

from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from shop.models import Product, PurchaseHistory, Sale
from shop.sale import opening
from shop.tests import servers
from shop.tests.till import (
    APPLE,
    NO_TOKEN,
    Answer,
    answer_of,
    assert_refused,
    buy,
    get,
    open_sale,
    report,
    rolled_back,
)

pytestmark = rolled_back

BEARER = {"Authorization": f"Bearer {servers.RESTOCK_TOKEN}"}


def restock(wish: dict[str, Any], headers: dict[str, str] = BEARER) -> Answer:
    client = Client()
    return answer_of(
        client.post("/restock", wish, content_type="application/json", headers=headers)
    )


@pytest.mark.parametrize(
    ("units", "lock"), [(0, "none"), (1_000_000, "none"), (100_000, "skip-locked")]
)
def test_a_restock_opens_a_sale_and_answers_201_with_its_report(units: int, lock: str) -> None:
    apples = open_sale(3)
    answer = restock({"product": "pear", "stock": units, "lock": lock})
    sale = Sale.objects.get(product__name="pear")
    assert answer.status == 201
    assert answer.body == report(sale, product="pear", initial_stock=units, stock_left=units)
    assert Product.objects.get(name="pear").sale == sale
    apples.refresh_from_db()
    assert apples.closed_at is None, "those of other products stay open"
    assert restock({"stock": "5"}).body["product"] == APPLE


def test_sales_and_orders_survive_a_restock() -> None:
    first = open_sale(3)
    buy(buyer="ada")
    order = PurchaseHistory.objects.get()
    second = open_sale(8)
    order.refresh_from_db()
    first.refresh_from_db()
    assert (order.sale, order.purchaser) == (first, "ada")
    assert first.closed_at == second.opened_at
    assert get(f"/sales/{first.pk}").body == report(first, open=False, orders=1, stock_left=2)
    assert get(f"/sales/{second.pk}").body == report(second, initial_stock=8, stock_left=8)


def test_a_close_without_a_sale_or_a_product_changes_nothing() -> None:
    opening.close(product="pear")
    open_sale(3)
    opening.close(product=APPLE)
    opening.close(product=APPLE)
    assert Sale.objects.filter(closed_at__isnull=True).count() == 0
    open_sale(5)
    assert buy().status == 201


@pytest.mark.parametrize("bearer", ["", "wrong", servers.RESTOCK_TOKEN[:-1], "\xfc", "none"])
def test_a_restock_without_the_token_is_403_and_opens_nothing(
    bearer: str, settings: Settings
) -> None:
    """In a shop without a token it is never opened: an empty one must not match an empty header."""
    if bearer == "none":
        settings.SHOP_RESTOCK_TOKEN = bearer = ""
        assert restock({"stock": 9}, {}).status == 403
    answer = restock({"stock": 9}, {"Authorization": f"Bearer {bearer}"})
    assert_refused(answer, 403, NO_TOKEN)
    assert Sale.objects.filter(initial_stock=9).count() == 0


@pytest.mark.parametrize("units", [-1, 1_000_001, 10**30, 1.5, "many", "", None, True, [1]])
def test_any_other_stock_is_400_with_the_bounds(units: Any) -> None:
    answer = restock({"stock": units})
    assert_refused(answer, 400, f"bad stock: {units!r}", "a whole number from 0 to 1000000")
