"""POST /restock: a new sale, while the old one and its orders stay; and the report of a sale, its
orders and its curve, read over HTTP."""

from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from shop.models import Product, PurchaseHistory, Sale
from shop.sale import opening, reports
from shop.tests.node import BEARER
from shop.tests.servers import RESTOCK_TOKEN
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


@pytest.mark.parametrize("bearer", ["", "wrong", RESTOCK_TOKEN[:-1], "\xfc", "none"])
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


# --- the report ---------------------------------------------------------------------------------


def record(sale: Sale, *, orders: int, stock_left: int) -> None:
    """Write a sale's outcome as a rush would have left it."""
    PurchaseHistory.objects.bulk_create(
        PurchaseHistory(
            sale=sale, product_name=APPLE, purchaser=f"b{number}", lock="none", stock_seen=1
        )
        for number in range(orders)
    )
    Product.objects.filter(pk=sale.product_id).update(amount=stock_left)


@pytest.mark.parametrize(
    ("orders", "left", "oversold", "lost_updates", "undersold"),
    [
        (0, 3, 0, 0, 2),
        (2, 1, 0, 0, 0),
        (3, 0, 0, 0, 0),
        (6, 0, 3, 3, 0),
        (6, 2, 3, 5, 0),
        (2, 2, 0, 1, 0),  # not oversold, yet an update was lost
        (1, 2, 0, 0, 1),
    ],
)
def test_a_report_counts_from_orders_and_undersold_only_when_the_number_of_buyers_is_given(
    orders: int, left: int, oversold: int, lost_updates: int, undersold: int
) -> None:
    sale = open_sale(3)
    record(sale, orders=orders, stock_left=left)
    counted = report(
        *(sale,), orders=orders, stock_left=left, oversold=oversold, lost_updates=lost_updates
    )
    assert get(f"/sales/{sale.pk}").body == counted
    with_buyers = get(f"/sales/{sale.pk}?buyers=2").body
    assert with_buyers == {**counted, "buyers": 2, "undersold": undersold}
    of_more = get(f"/sales/{sale.pk}?buyers=9").body
    assert of_more["undersold"] == max(0, 3 - orders)


def test_the_latest_sale_is_the_newest_of_its_product() -> None:
    open_sale(1)
    apples = open_sale(3)
    pears = open_sale(3, product="pear")
    assert get("/sales/latest").body == report(apples)
    assert get("/sales/latest?product=pear&buyers=2").body == report(
        pears, product="pear", buyers=2, undersold=2
    )


def test_a_product_that_was_never_on_sale_has_no_latest_sale() -> None:
    said = "plum was never on sale. Open one with POST /restock or manage.py restock."
    assert_refused(get("/sales/latest?product=plum"), 404, said)


def orders_of(sale: Sale, query: str = "", *, bearer: str | None = RESTOCK_TOKEN) -> Answer:
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    return answer_of(Client().get(f"/sales/{sale.pk}/orders{query}", headers=headers))


def test_orders_are_listed_oldest_first_as_they_were_written() -> None:
    sale = open_sale(3)
    bought = [("ada", "redis", "k1", 3), ("bob", "none", None, 2)]
    for buyer, lock, key, _ in bought:
        buy(buyer=buyer, lock=lock, key=key)
    open_sale(3)
    orders = PurchaseHistory.objects.order_by("pk")
    assert orders_of(sale).body == {
        "sale": sale.pk,
        "orders": [
            {
                "order": order.pk,
                "buyer": buyer,
                "key": key,
                "lock": lock,
                "fence": order.fence,
                "stock_seen": seen,
                "product": "apple",
                "amount": 1,
                "time": order.purchase_time.isoformat(),
            }
            for (buyer, lock, key, seen), order in zip(bought, orders, strict=True)
        ],
        "next": None,
    }
    assert [order.fence is None for order in orders] == [False, True]


@pytest.mark.parametrize("demo", [True, False])
@pytest.mark.parametrize("bearer", [None, "wrong"])
def test_nobody_reads_buyers_and_keys_without_the_token(
    bearer: str | None, demo: bool, settings: Settings
) -> None:
    """A request with an order's key is answered with that order."""
    settings.SHOP_DEMO = demo
    assert_refused(orders_of(open_sale(3), bearer=bearer), 403, NO_TOKEN)


def test_orders_come_in_pages_and_the_last_one_says_so() -> None:
    sale = open_sale(9)
    open_sale(0, product="pear")
    record(sale, orders=5, stock_left=4)
    numbers = list(PurchaseHistory.objects.order_by("pk").values_list("pk", flat=True))
    pages = [orders_of(sale, "?limit=2").body]
    while (after := pages[-1]["next"]) is not None:
        pages.append(orders_of(sale, f"?after={after}&limit=2").body)
    assert [order["order"] for page in pages for order in page["orders"]] == numbers
    assert [len(page["orders"]) for page in pages] == [2, 2, 1]
    exactly = orders_of(sale, "?limit=5").body
    assert (len(exactly["orders"]), exactly["next"]) == (5, None)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        *(("?buyers=-1", "buyers: -1"), ("?buyers=many", "buyers: 'many'"), ("?buyers=", "buyers")),
        *(("/orders?limit=0", "limit: 0"), ("/orders?limit=1001", "limit"), ("?page=2", "page")),
        *(("/orders?limit=all", "limit: 'all'"), ("/orders?after=-1", "after: -1")),
    ],
)
def test_a_number_out_of_bounds_or_another_parameter_is_400(query: str, named: str) -> None:
    answer = answer_of(Client().get(f"/sales/{open_sale(3).pk}{query}", headers=BEARER))
    assert (answer.status, answer.body["outcome"]) == (400, "error")
    assert named in answer.body["error"]
    assert answer.body["allowed"]


# --- the curve of a sale ------------------------------------------------------------------------


def test_the_curve_of_a_sale_is_its_orders_without_their_buyers_and_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sale = open_sale(3)
    assert get(f"/sales/{sale.pk}/curve").body == {"sale": sale.pk, "curve": []}
    buy(buyer="ada", key="k1")
    buy(buyer="bob", key="k2")
    one, two = PurchaseHistory.objects.order_by("pk")
    between = (two.purchase_time - one.purchase_time).total_seconds()
    assert get(f"/sales/{sale.pk}/curve").body == {
        "sale": sale.pk,
        "curve": [[0.0, 3], [between, 2]],
    }
    monkeypatch.setattr(reports, "LONGEST_CURVE", 1)
    assert len(get(f"/sales/{sale.pk}/curve").body["curve"]) == 1


@pytest.mark.parametrize("path", ["/sales/0", "/sales/0/curve", f"/sales/{'9' * 30}"])
def test_a_sale_that_does_not_exist_is_404(path: str) -> None:
    said = "There is no such sale. Open one with POST /restock or manage.py restock."
    assert_refused(get(path), 404, said)
