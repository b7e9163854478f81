"""A sale, its orders and its report: they survive the next sale, and their numbers are right."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from pytest_django import Settings

from shop import stock
from shop.checkout import check_out
from shop.errors import Lost
from shop.models import Product, PurchaseHistory, Sale
from shop.purchase import Attempt
from shop.tests import servers
from shop.tests.database import somebody_waits_for_a_row
from shop.tests.interleaving import Interleaving
from shop.tests.till import (
    APPLE,
    Answer,
    answer_of,
    books,
    buy,
    committed,
    eventually,
    open_sale,
    rolled_back,
)

pytestmark = rolled_back

BEARER = {"Authorization": f"Bearer {servers.RESTOCK_TOKEN}"}


def restock(wish: dict[str, Any], headers: dict[str, str] = BEARER) -> Answer:
    client = Client()
    return answer_of(
        client.post("/restock", wish, content_type="application/json", headers=headers)
    )


def get(path: str) -> Answer:
    return answer_of(Client().get(path))


def report(sale: Sale, **numbers: Any) -> dict[str, Any]:
    """The report of an open sale of 3 apples that nobody came to, but for what is named."""
    untouched = {
        "sale": sale.pk,
        "product": APPLE,
        "open": True,
        "initial_stock": 3,
        "orders": 0,
        "stock_left": 3,
        "buyers": None,
        "oversold": 0,
        "undersold": None,
        "lost_updates": 0,
    }
    return untouched | numbers


def record(sale: Sale, *, orders: int, stock_left: int) -> None:
    """Write a sale's outcome as a rush would have left it."""
    PurchaseHistory.objects.bulk_create(
        PurchaseHistory(
            sale=sale, product_name=APPLE, purchaser=f"b{number}", lock="none", stock_seen=1
        )
        for number in range(orders)
    )
    Product.objects.filter(pk=sale.product_id).update(amount=stock_left)


# --- restock ------------------------------------------------------------------------------------


def test_a_restock_opens_a_sale_and_answers_201_with_its_report() -> None:
    answer = restock({"product": "pear", "stock": 7})
    sale = Sale.objects.get(product__name="pear")
    assert answer.status == 201
    assert answer.body == report(sale, product="pear", initial_stock=7, stock_left=7)
    assert Product.objects.get(name="pear").sale == sale


def test_a_restock_without_a_product_is_of_apples() -> None:
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


def test_a_restock_leaves_the_sales_of_other_products_open() -> None:
    apples, pears = open_sale(3), open_sale(3, product="pear")
    open_sale(9, product="pear")
    apples.refresh_from_db()
    pears.refresh_from_db()
    assert apples.closed_at is None
    assert pears.closed_at is not None


@committed
@pytest.mark.parametrize("lock", ["none", "token"])
def test_a_buyer_who_read_before_a_restock_sells_nothing_of_the_next_sale(lock: str) -> None:
    """Written blindly, the old stock less one would be the new sale's stock."""
    first = open_sale(1)
    with Interleaving() as stage:
        late = stage.enter("late", partial(check_out, Attempt(APPLE, "ada", lock)))
        late.runs_to("after_read")
        open_sale(50)
        with pytest.raises(Lost, match="the sale was closed meanwhile; nothing was sold"):
            late.finishes()
    first.refresh_from_db()
    assert books() == (0, 50)
    assert first.final_stock == 1


@committed
def test_a_restock_waits_for_a_buyer_who_is_about_to_commit() -> None:
    first = open_sale(3)
    with Interleaving() as stage:
        a = stage.enter("A", partial(buy, lock="redis")).runs_to("before_commit")
        clerk = stage.enter("clerk", partial(stock.restock, product=APPLE, amount=50))
        eventually(somebody_waits_for_a_row, what="the restock waits for A's row")
        assert a.finishes().status == 201
        clerk.finishes()
    first.refresh_from_db()
    assert first.final_stock == 2, "A's unit is counted in the sale that it was sold in"
    assert PurchaseHistory.objects.get().sale == first
    assert Product.objects.get(name=APPLE).amount == 50


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {servers.RESTOCK_TOKEN}x"},
        {"Authorization": f"Bearer {servers.RESTOCK_TOKEN[:-1]}"},
        {"Authorization": "Bearer \xfc"},
    ],
    ids=["none", "empty", "wrong", "longer", "shorter", "not ascii"],
)
def test_a_restock_without_the_token_is_403_and_opens_nothing(headers: dict[str, str]) -> None:
    answer = restock({"stock": 9}, headers)
    assert answer.status == 403
    assert answer.body == {
        "outcome": "error",
        "error": "The bearer token is missing or wrong. Set SHOP_RESTOCK_TOKEN and send it along.",
    }
    assert Sale.objects.filter(initial_stock=9).count() == 0


@pytest.mark.parametrize("headers", [BEARER, {}, {"Authorization": "Bearer "}])
def test_a_shop_without_a_token_is_never_restocked_over_http(
    headers: dict[str, str], settings: Settings
) -> None:
    """An empty token must not match an empty header."""
    settings.SHOP_RESTOCK_TOKEN = ""
    assert restock({"stock": 9}, headers).status == 403


@pytest.mark.parametrize("units", [0, 1, 1_000_000])
def test_a_sale_may_open_with_none_to_a_million(units: int) -> None:
    assert restock({"stock": units}).body["initial_stock"] == units


@pytest.mark.parametrize("units", [-1, 1_000_001, 10**30, 1.5, "many", "", None, True, [1]])
def test_any_other_stock_is_400_with_the_bounds(units: Any) -> None:
    answer = restock({"stock": units})
    assert answer.status == 400
    assert answer.body == {
        "outcome": "error",
        "error": f"bad stock: {units!r}",
        "allowed": ["a whole number from 0 to 1000000"],
    }


def test_a_restock_without_a_stock_or_with_an_unknown_parameter_is_400() -> None:
    assert restock({}).body["error"] == "bad stock: None"
    assert restock({"stock": 1, "amount": 2}).body == {
        "outcome": "error",
        "error": "unknown parameter: amount",
        "allowed": ["product", "stock"],
    }


# --- reports ------------------------------------------------------------------------------------

#: orders, stock left -> oversold, lost updates
OUTCOMES = [
    (0, 3, 0, 0),
    (2, 1, 0, 0),
    (3, 0, 0, 0),
    (6, 0, 3, 3),
    (6, 2, 3, 5),
    (2, 2, 0, 1),  # not oversold, yet an update was lost
]


@pytest.mark.parametrize(("orders", "left", "oversold", "lost_updates"), OUTCOMES)
def test_a_report_counts_oversold_and_lost_updates_from_orders(
    orders: int, left: int, oversold: int, lost_updates: int
) -> None:
    sale = open_sale(3)
    record(sale, orders=orders, stock_left=left)
    assert get(f"/sales/{sale.pk}").body == report(
        *(sale,), orders=orders, stock_left=left, oversold=oversold, lost_updates=lost_updates
    )


@pytest.mark.parametrize(
    ("orders", "buyers", "undersold"), [(0, 0, 0), (0, 2, 2), (2, 9, 1), (2, 2, 0), (6, 9, 0)]
)
def test_a_report_counts_undersold_when_it_is_told_how_many_came(
    orders: int, buyers: int, undersold: int
) -> None:
    sale = open_sale(3)
    record(sale, orders=orders, stock_left=0)
    answer = get(f"/sales/{sale.pk}?buyers={buyers}")
    assert (answer.body["buyers"], answer.body["undersold"]) == (buyers, undersold)


@pytest.mark.parametrize(
    ("buyers", "shown"), [("-1", "-1"), ("many", "'many'"), ("", "''"), ("1000001", "1000001")]
)
def test_a_bad_number_of_buyers_is_400(buyers: str, shown: str) -> None:
    answer = get(f"/sales/{open_sale(3).pk}?buyers={buyers}")
    assert answer.status == 400
    assert answer.body == {
        "outcome": "error",
        "error": f"bad buyers: {shown}",
        "allowed": ["a whole number from 0 to 1000000"],
    }


def test_the_latest_sale_is_the_newest_of_its_product() -> None:
    open_sale(1)
    apples = open_sale(3)
    pears = open_sale(3, product="pear")
    assert get("/sales/latest").body == report(apples)
    assert get("/sales/latest?product=pear&buyers=2").body == report(
        pears, product="pear", buyers=2, undersold=2
    )


def test_a_product_that_was_never_on_sale_has_no_latest_sale() -> None:
    answer = get("/sales/latest?product=plum")
    assert answer.status == 404
    assert answer.body == {
        "outcome": "error",
        "error": "plum was never on sale. Open one with POST /restock or manage.py restock.",
    }


def test_orders_are_listed_oldest_first_as_they_were_written() -> None:
    sale = open_sale(3)
    first = buy(buyer="ada", lock="redis", key="k1").body["order"]
    second = buy(buyer="bob", lock="none").body["order"]
    open_sale(3)
    orders = {order.pk: order for order in PurchaseHistory.objects.all()}
    assert get(f"/sales/{sale.pk}/orders").body == {
        "sale": sale.pk,
        "orders": [
            {
                "order": first,
                "buyer": "ada",
                "key": "k1",
                "lock": "redis",
                "fence": orders[first].fence,
                "stock_seen": 3,
                "time": orders[first].purchase_time.isoformat(),
            },
            {
                "order": second,
                "buyer": "bob",
                "key": None,
                "lock": "none",
                "fence": None,
                "stock_seen": 2,
                "time": orders[second].purchase_time.isoformat(),
            },
        ],
    }


@pytest.mark.parametrize("path", ["/sales/0", "/sales/0/orders", f"/sales/{'9' * 30}"])
def test_a_sale_that_does_not_exist_is_404(path: str) -> None:
    answer = get(path)
    assert answer.status == 404
    assert answer.body == {
        "outcome": "error",
        "error": "There is no such sale. Open one with POST /restock or manage.py restock.",
    }


@pytest.mark.parametrize("path", ["/sales/1", "/sales/latest", "/sales/1/orders", "/strategies"])
def test_a_report_is_read_only(path: str) -> None:
    response = Client().post(path)
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD"
    assert response.json() == {"outcome": "error", "error": "use GET", "allowed": ["GET", "HEAD"]}


# --- what the database itself refuses -----------------------------------------------------------


def test_stock_cannot_be_written_below_zero() -> None:
    open_sale(0)
    with (
        transaction.atomic(),
        pytest.raises(IntegrityError, match="product_amount_not_negative"),
    ):
        Product.objects.filter(name=APPLE).update(amount=-1)


def test_a_key_cannot_be_written_twice_and_no_key_can() -> None:
    sale = open_sale(3)
    record(sale, orders=2, stock_left=1)  # without keys
    one, two = PurchaseHistory.objects.all()
    PurchaseHistory.objects.filter(pk=one.pk).update(idempotency_key="k1")
    with transaction.atomic(), pytest.raises(IntegrityError, match="idempotency_key"):
        PurchaseHistory.objects.filter(pk=two.pk).update(idempotency_key="k1")


def test_an_order_cannot_be_without_a_sale() -> None:
    record(open_sale(3), orders=1, stock_left=2)
    with transaction.atomic(), pytest.raises(IntegrityError, match="sale_id"):
        PurchaseHistory.objects.update(sale=None)
