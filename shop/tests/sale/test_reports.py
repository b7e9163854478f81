"""The report of a sale, its orders and its curve, read over HTTP."""

import pytest
from django.test import Client
from pytest_django import Settings

from shop.models import Product, PurchaseHistory, Sale
from shop.sale import reports
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
    headers = {"Authorization": f"Bearer {RESTOCK_TOKEN}"}
    answer = answer_of(Client().get(f"/sales/{open_sale(3).pk}{query}", headers=headers))
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
