"""The HTTP API of sales: POST /restock, and GET for the report and for the orders of a sale."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from shop.errors import KeyReused, Unavailable
from shop.models import Product, PurchaseHistory, Sale
from shop.sale import opening, reports
from shop.strategies import STRATEGIES
from shop.tests.node import BEARER, run_python
from shop.tests.purchases import (
    APPLE,
    TIMEOUT_SECONDS,
    TOKEN_ERROR,
    JsonReply,
    assert_refused,
    buy,
    committed,
    count_orders_and_stock,
    expected_report,
    get_json,
    open_sale,
    parse_reply,
    promise_orders,
    rolled_back,
)
from shop.tests.servers import RESTOCK_TOKEN

pytestmark = rolled_back


def post_restock(fields: dict[str, Any], headers: dict[str, str] = BEARER) -> JsonReply:
    """Send POST /restock, by default with the bearer token that the shop requires."""
    client = Client()
    return parse_reply(
        client.post("/restock", fields, content_type="application/json", headers=headers)
    )


@pytest.mark.parametrize(
    ("units", "lock"), [(0, "none"), (1_000_000, "none"), (100_000, "skip-locked")]
)
def test_restock_opens_a_sale_and_returns_its_report(units: int, lock: str) -> None:
    """A sale may have 0 to 1,000,000 units, and under `skip-locked` at most 100,000.

    Sales of other products stay open. The default product is `apple`.
    """
    apples = open_sale(3)
    reply = post_restock({"product": "pear", "stock": units, "lock": lock})
    sale = Sale.objects.get(product__name="pear")
    assert reply.status == 201
    assert reply.body == expected_report(
        sale, product="pear", initial_stock=units, stock_left=units
    )
    assert Product.objects.get(name="pear").sale == sale
    apples.refresh_from_db()
    assert apples.closed_at is None, "sales of other products stay open"
    assert post_restock({"stock": "5"}).body["product"] == APPLE


# --- a repeated restock ---------------------------------------------------------------------------

CRON_HEADERS = BEARER | {"Idempotency-Key": "cron-1"}


def test_restock_with_a_used_key_returns_its_sale() -> None:
    """A repeated restock opens no sale. It returns the report of the sale that its key opened."""
    fields = {"stock": 10}
    first = post_restock(fields, CRON_HEADERS)
    buy(buyer="ada")
    retry = post_restock(fields, CRON_HEADERS)
    assert (first.status, retry.status) == (201, 200)
    assert retry.body == first.body | {"orders": 1, "stock_left": 9}
    assert Sale.objects.filter(idempotency_key="cron-1").count() == 1
    assert buy(buyer="eve").body["sale"] == first.body["sale"]
    assert post_restock(fields).body["sale"] != first.body["sale"], (
        "without a key every restock opens a sale"
    )
    assert post_restock(fields, CRON_HEADERS).body["open"] is False


@pytest.mark.parametrize("difference", [{"stock": 11}, {"product": "pear"}])
def test_reused_key_with_a_different_restock_is_422(difference: dict[str, Any]) -> None:
    """A second restock with the same key, but another field, is refused. The first sale stays open.

    difference  the field that differs from the first restock, with its new value
    """
    first = post_restock({"stock": 10}, CRON_HEADERS)
    reply = post_restock({"stock": 10} | difference, CRON_HEADERS)
    assert_refused(reply, 422, KeyReused.text)
    assert count_orders_and_stock() == (0, 10)
    assert Sale.objects.get(closed_at=None).pk == first.body["sale"]


def test_restock_with_a_bad_key_is_400() -> None:
    reply = post_restock({"stock": 10}, BEARER | {"Idempotency-Key": "two words"})
    assert_refused(reply, 400, "bad Idempotency-Key", "1 to 255 printable ASCII characters")


def test_repeated_restock_does_not_close_the_sale() -> None:
    """After a repeated restock under `reserve`, Redis still sells the units of the open sale.

    If the repeated request closed the sale first, a rollback would not undo the change in Redis.
    """
    post_restock({"stock": 2, "lock": "reserve"}, CRON_HEADERS)
    (first_order,) = promise_orders("ada")
    post_restock({"stock": 2, "lock": "reserve"}, CRON_HEADERS)
    (second_order,) = promise_orders("bob")
    assert second_order > first_order
    assert count_orders_and_stock() == (2, 0)


@committed
def test_concurrent_restocks_with_one_key_open_one_sale() -> None:
    """Four equal requests at the same time all return the same sale."""
    barrier = threading.Barrier(4)

    def send_restock(_: int) -> int:
        barrier.wait(TIMEOUT_SECONDS)
        try:
            return int(post_restock({"stock": 10}, CRON_HEADERS).body["sale"])
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        (sale_number,) = set(pool.map(send_restock, range(4)))
    assert Sale.objects.get(idempotency_key="cron-1").pk == sale_number
    assert Sale.objects.get(closed_at=None).pk == sale_number


# --- the cached report ----------------------------------------------------------------------------


def test_report_without_the_token_may_be_a_second_old(settings: Settings) -> None:
    """Without the token a request gets a cached report; with the token, a new one.

    Anybody may request the report, and counting the orders takes longer with each order.
    """
    settings.SHOP_DEMO = False
    sale = open_sale(3)
    path = f"/sales/{sale.pk}"
    first = get_json(f"{path}?buyers=2").body
    buy(buyer="ada")
    with CaptureQueriesContext(connection) as queries:
        assert get_json(path).body == first | {"buyers": None, "undersold": None}
        assert get_json("/sales/latest").body["orders"] == 0
    assert len(queries) == 1, "only the latest sale should be looked up"
    fresh = parse_reply(Client().get(path, headers=BEARER)).body
    assert fresh["orders"] == 1


def test_report_older_than_the_maximum_age_is_read_again() -> None:
    """With a maximum age of 0 s the second report counts the orders again."""
    cached_reports = reports.CachedReports(max_age_seconds=0)
    sale = open_sale(3)
    assert cached_reports.get_report(sale.pk).orders == 0
    buy(buyer="ada")
    assert cached_reports.get_report(sale.pk).orders == 1


def test_report_stops_waiting_for_another_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one thread at a time queries a report. If it takes too long, the other threads give up.

    Otherwise, in an outage, each request would wait until all earlier queries have failed.
    """
    monkeypatch.setattr(reports, "QUERY_TIMEOUT_SECONDS", 0.01)
    cached_reports = reports.CachedReports(max_age_seconds=1)
    with (
        cached_reports.query_lock,
        pytest.raises(Unavailable, match="the database does not answer"),
    ):
        cached_reports.get_report(1)


# --- restock and close ----------------------------------------------------------------------------


def test_restock_keeps_earlier_sales_and_orders() -> None:
    first = open_sale(3)
    buy(buyer="ada")
    order = PurchaseHistory.objects.get()
    second = open_sale(8)
    order.refresh_from_db()
    first.refresh_from_db()
    assert (order.sale, order.purchaser) == (first, "ada")
    assert first.closed_at == second.opened_at
    assert get_json(f"/sales/{first.pk}").body == expected_report(
        first, open=False, orders=1, stock_left=2
    )
    assert get_json(f"/sales/{second.pk}").body == expected_report(
        second, initial_stock=8, stock_left=8
    )


def test_closing_without_an_open_sale_has_no_effect() -> None:
    """It is no error if the product does not exist, or if its sale is already closed.

    A new sale can be opened after that.
    """
    opening.close_open_sale(product="pear")
    open_sale(3)
    opening.close_open_sale(product=APPLE)
    opening.close_open_sale(product=APPLE)
    assert Sale.objects.filter(closed_at__isnull=True).count() == 0
    open_sale(5)
    assert buy().status == 201


@pytest.mark.parametrize("bearer", ["", "wrong", RESTOCK_TOKEN[:-1], "\xfc", "none"])
def test_restock_without_the_token_is_403(bearer: str, settings: Settings) -> None:
    """The token is empty, wrong, too short or not ASCII.

    In the case `none` the shop itself has no token. Then it refuses a request without the header,
    and one with an empty token.
    """
    if bearer == "none":
        settings.SHOP_RESTOCK_TOKEN = ""
        bearer = ""
        assert post_restock({"stock": 9}, {}).status == 403
    reply = post_restock({"stock": 9}, {"Authorization": f"Bearer {bearer}"})
    assert_refused(reply, 403, TOKEN_ERROR)
    assert Sale.objects.filter(initial_stock=9).count() == 0


@pytest.mark.parametrize("units", [-1, 1_000_001, 10**30, 1.5, "many", "", None, True, [1]])
def test_bad_stock_is_400_with_the_bounds(units: Any) -> None:
    reply = post_restock({"stock": units})
    assert_refused(reply, 400, f"bad stock: {units!r}", "a whole number from 0 to 1000000")


# --- the numbers of a report --------------------------------------------------------------------


def record_outcome(sale: Sale, *, orders: int, stock_left: int) -> None:
    """Write this number of orders, and this stock, as buyers without a lock might leave them."""
    PurchaseHistory.objects.bulk_create(
        PurchaseHistory(
            sale=sale, product_name=APPLE, purchaser=f"b{number}", lock="none", stock_seen=1
        )
        for number in range(orders)
    )
    Product.objects.filter(pk=sale.product_id).update(amount=stock_left)


@pytest.mark.parametrize(
    ("orders", "stock_left", "oversold", "lost_updates", "undersold"),
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
def test_report_counts_orders(
    orders: int, stock_left: int, oversold: int, lost_updates: int, undersold: int
) -> None:
    """The report of a sale of 3 units computes three figures from its orders and its stock.

    oversold      orders beyond the 3 units
    lost_updates  decrements that another write erased: orders + stock_left - 3
    undersold     units left although buyers were refused: min(buyers, 3) - orders, if positive. It
                  is null unless the request has a number of buyers. Here it is for 2 buyers
    """
    sale = open_sale(3)
    record_outcome(sale, orders=orders, stock_left=stock_left)
    report = expected_report(
        sale,
        orders=orders,
        stock_left=stock_left,
        oversold=oversold,
        lost_updates=lost_updates,
    )
    assert get_json(f"/sales/{sale.pk}").body == report
    report_for_two_buyers = get_json(f"/sales/{sale.pk}?buyers=2").body
    assert report_for_two_buyers == {**report, "buyers": 2, "undersold": undersold}
    report_for_nine_buyers = get_json(f"/sales/{sale.pk}?buyers=9").body
    assert report_for_nine_buyers["undersold"] == max(0, 3 - orders)


def test_report_works_without_the_strategy_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shop from which `reserve` was removed reports no figures on promises."""
    monkeypatch.delitem(STRATEGIES, "reserve")
    sale = open_sale(3)
    report = reports.sale_report(sale.pk)
    assert report.stock_left == 3
    assert report.settlement == reports.UNKNOWN_SETTLEMENT


def test_latest_sale_is_the_newest_of_its_product() -> None:
    open_sale(1)
    apples = open_sale(3)
    pears = open_sale(3, product="pear")
    assert get_json("/sales/latest").body == expected_report(apples)
    assert get_json("/sales/latest?product=pear&buyers=2").body == expected_report(
        pears, product="pear", buyers=2, undersold=2
    )


def test_product_without_a_sale_has_no_latest_sale() -> None:
    error = "plum has never had a sale. Open a sale with POST /restock or manage.py restock."
    assert_refused(get_json("/sales/latest?product=plum"), 404, error)


# --- the orders of a sale -------------------------------------------------------------------------


def get_orders(sale: Sale, query: str = "", *, bearer: str | None = RESTOCK_TOKEN) -> JsonReply:
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    return parse_reply(Client().get(f"/sales/{sale.pk}/orders{query}", headers=headers))


def test_orders_are_listed_oldest_first() -> None:
    sale = open_sale(3)
    # buyer, lock, key, stock_seen
    purchases = [("ada", "redis", "k1", 3), ("bob", "none", None, 2)]
    for buyer, lock, key, _ in purchases:
        buy(buyer=buyer, lock=lock, key=key)
    open_sale(3)  # closes the first sale, whose orders are still listed
    orders = PurchaseHistory.objects.order_by("pk")
    assert get_orders(sale).body == {
        "sale": sale.pk,
        "orders": [
            {
                "order": order.pk,
                "buyer": buyer,
                "key": key,
                "lock": lock,
                "fence": order.fence,
                "stock_seen": stock_seen,
                "product": "apple",
                "amount": 1,
                "time": order.purchase_time.isoformat(),
            }
            for (buyer, lock, key, stock_seen), order in zip(purchases, orders, strict=True)
        ],
        "next": None,
    }
    # The lock of `redis` gives each purchase a fence. `none` has no lock.
    assert [order.fence is None for order in orders] == [False, True]


@pytest.mark.parametrize("demo", [True, False])
@pytest.mark.parametrize("bearer", [None, "wrong"])
def test_order_list_requires_the_token(bearer: str | None, demo: bool, settings: Settings) -> None:
    """The list contains buyers and keys, so even a demo requires the token.

    With the key and the buyer of an order, anybody could repeat the buyer's request.
    """
    settings.SHOP_DEMO = demo
    assert_refused(get_orders(open_sale(3), bearer=bearer), 403, TOKEN_ERROR)


def test_orders_are_paged() -> None:
    """The field `next` of a page is the parameter `after` of the next page.

    On the last page `next` is null, even if the page is full.
    """
    sale = open_sale(9)
    open_sale(0, product="pear")  # a sale of another product
    record_outcome(sale, orders=5, stock_left=4)
    order_numbers = list(PurchaseHistory.objects.order_by("pk").values_list("pk", flat=True))
    pages = [get_orders(sale, "?limit=2").body]
    while pages[-1]["next"] is not None:
        pages.append(get_orders(sale, f"?after={pages[-1]['next']}&limit=2").body)
    assert [order["order"] for page in pages for order in page["orders"]] == order_numbers
    assert [len(page["orders"]) for page in pages] == [2, 2, 1]
    full_page = get_orders(sale, "?limit=5").body
    assert (len(full_page["orders"]), full_page["next"]) == (5, None)


# --- bad requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "error_part"),
    [
        ("?buyers=-1", "buyers: -1"),
        ("?buyers=many", "buyers: 'many'"),
        ("?buyers=", "buyers"),
        ("/orders?limit=0", "limit: 0"),
        ("/orders?limit=1001", "limit"),
        ("?page=2", "page"),
        ("/orders?limit=all", "limit: 'all'"),
        ("/orders?after=-1", "after: -1"),
    ],
)
def test_bad_or_unknown_parameter_is_400(query: str, error_part: str) -> None:
    reply = parse_reply(Client().get(f"/sales/{open_sale(3).pk}{query}", headers=BEARER))
    assert (reply.status, reply.body["outcome"]) == (400, "error")
    assert error_part in reply.body["error"]
    assert reply.body["allowed"]


@pytest.mark.parametrize("path", ["/sales/0", f"/sales/{'9' * 30}"])
def test_unknown_sale_is_404(path: str) -> None:
    error = "There is no such sale. Open one with POST /restock or manage.py restock."
    assert_refused(get_json(path), 404, error)


#: A program that requests the report of sale 2**63 by GET and by a command, and prints the errors.
#: The largest number that a column of SQLite can hold is 2**63 - 1.
REQUEST_SALE_TOO_LARGE = """
import django
django.setup()
from django.core.management import CommandError, call_command
from django.test import Client
call_command("migrate", verbosity=0)
number = 2**63
print(Client(headers={"host": "localhost"}).get(f"/sales/{number}").status_code)
try:
    call_command("sale_report", str(number))
except CommandError as error:
    print(error)
"""


@pytest.mark.parametrize("demo", ["0", "1"])
def test_sale_number_too_large_for_sqlite_is_404(tmp_path: Path, demo: str) -> None:
    """For such a number the module sqlite3 would raise OverflowError, so the shop checks it first.

    demo  SHOP_DEMO: outside of a demo, the HTTP API takes the report from a cache
    """
    completed = run_python(
        "-c",
        REQUEST_SALE_TOO_LARGE,
        SHOP_DEMO=demo,
        DATABASE_URL=f"sqlite:///{tmp_path}/shop.sqlite3",
        REDIS_URL=os.environ["REDIS_URL"],
    )
    text = "There is no such sale. Open one with POST /restock or manage.py restock."
    assert completed.stdout == f"404\n{text}\n", completed.stderr
