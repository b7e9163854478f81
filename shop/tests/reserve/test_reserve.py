"""The strategy `reserve`: Redis promises orders, and consumers write them to PostgreSQL later.

A promise is a unit that Redis has sold to a buyer, and an entry on a Redis stream. A consumer
settles the promise: it writes the order. Until then the promise is unsettled. The tests check the
promises, the limits on unsettled promises, and that no unit is counted twice or not at all.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from shop.management.commands.reconcile import reconcile
from shop.models import PurchaseHistory
from shop.ops.redis import locks_client
from shop.reserve import promises, settle
from shop.reserve.promises import KEY_LIFETIME_MS, STREAM, counter_key, promise_key, read_promises
from shop.sale.reports import sale_report
from shop.tests.purchases import (
    APPLE,
    assert_retry_later,
    buy,
    committed,
    count_orders_and_stock,
    eventually,
    open_sale,
    promise_orders,
    settle_all_promises,
)

pytestmark = committed

buy_reserved = partial(buy, lock="reserve")
BACKLOG_ERROR = (
    "Too many promised orders wait to be written; nothing was sold. Retry with the same key."
)


def test_promised_order_keeps_its_number() -> None:
    """A key gets the same order number before and after its order is written."""
    sale = open_sale(3)
    first = buy_reserved(key="k1")
    assert (first.status, first.body["outcome"], first.body["stock_seen"]) == (201, "sold", 3)
    retry = buy_reserved(key="k1")
    assert buy_reserved(key="k1", buyer="bob").status == 422
    assert PurchaseHistory.objects.count() == 0, "the order should not be written yet"
    settle_all_promises()
    late_retry = buy_reserved(key="k1")
    assert [reply.status for reply in (retry, late_retry)] == [200, 200]
    order = PurchaseHistory.objects.get(idempotency_key="k1")
    assert {reply.body["order"] for reply in (first, retry, late_retry)} == {order.pk}
    assert (order.sale_id, order.lock, order.stock_seen) == (sale.pk, "reserve", 3)
    unpromised_units, _ = read_promises(sale.pk)
    assert (unpromised_units, count_orders_and_stock()) == (2, (1, 2))


def test_buyer_of_an_earlier_sale_is_refused_without_a_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a restock many requests still contain the number of the earlier sale.

    If the shop queried the database for the open sale at each of them, other buyers would have to
    wait.
    """
    earlier_sale = open_sale(1)
    open_sale(2)
    assert buy_reserved(key="k1").status == 201

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the open sale was read again")

    monkeypatch.setattr(promises, "find_open_sale", fail)
    assert buy_reserved(key="k2", sale=earlier_sale.pk).status == 410
    assert buy_reserved(key="k3").status == 201


def test_counter_and_promise_of_a_key_expire_after_a_day() -> None:
    """A sale's counter and the promise of an Idempotency-Key expire. The stream never expires.

    A promise is a unit that Redis has sold. The stream has the promises without a written order.
    """
    sale = open_sale(3)
    buy_reserved(key="k1")
    client: Any = locks_client()
    for key in (counter_key(sale.pk), promise_key("k1")):
        # The test takes less than a minute.
        assert KEY_LIFETIME_MS - 60_000 < client.pttl(key) <= KEY_LIFETIME_MS
    assert client.pttl(STREAM) == -1


@pytest.mark.parametrize(
    ("setting", "limit"), [("SHOP_MOST_UNSETTLED", 2), ("SHOP_LONGEST_UNSETTLED", 0.2)]
)
def test_long_backlog_stops_promises(setting: str, limit: float, settings: Settings) -> None:
    """No consumer runs, so no promise is settled, and purchases are refused at a limit.

    A key that already has a promise is still answered with its order. After the promises are
    settled, the shop sells again.

    limit  the maximum number of unsettled promises, or the maximum age of the oldest, in seconds
    """
    setattr(settings, setting, limit)
    sale = open_sale(1_000)
    replies = [buy_reserved(key="k0")]

    def buy_and_check_refusal() -> bool:
        """Buy with a new key, and return whether the purchase was refused."""
        replies.append(buy_reserved(key=f"k{len(replies)}"))
        return replies[-1].status != 201

    eventually(buy_and_check_refusal, what="a purchase is refused")
    assert_retry_later(replies[-1], "busy", BACKLOG_ERROR)
    _, backlog = read_promises(sale.pk)
    assert len(backlog) == len(replies) - 1
    if setting == "SHOP_MOST_UNSETTLED":
        assert len(backlog) == limit
    else:
        assert backlog[-1].made_at <= backlog[0].made_at + limit
    assert buy_reserved(key="k0").status == 200, "the promise of this key should be repeated"
    settle_all_promises()
    assert buy_reserved(key="later").status == 201
    # One of the replies is a refusal, but the purchase with the key `later` has an order, too.
    assert count_orders_and_stock() == (len(replies), 1_000 - len(replies))


def test_node_with_a_closed_sale_in_its_cache_sells_the_new_sale() -> None:
    """Another node has opened a new sale, and this node still has the old sale in its cache.

    The node must not create the counter of the old sale in Redis again.
    """
    old_sale = open_sale(3)
    promise_orders("a")
    cached_sale = promises._open_sales[APPLE]
    new_sale = open_sale(10)
    promises._open_sales[APPLE] = cached_sale  # as if another node had opened the new sale
    reply = buy_reserved(key="b")
    assert (reply.status, reply.body["sale"]) == (201, new_sale.pk)
    unpromised_of_old, _ = read_promises(old_sale.pk)
    unpromised_of_new, _ = read_promises(new_sale.pk)
    assert (unpromised_of_old, unpromised_of_new) == (None, 9)


# --- concurrent settlement and sales --------------------------------------------------------------


PURCHASE_TIMEOUT_SECONDS = 60


@contextmanager
def run_consumers(count: int) -> Iterator[None]:
    """In the block, `count` threads settle promises: they write the promised orders."""
    stop = threading.Event()

    def run_consumer(_: int) -> None:
        try:
            settle.settle_until(stop)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        consumers = [pool.submit(run_consumer, number) for number in range(count)]
        try:
            yield
        finally:
            stop.set()
    for consumer in consumers:
        consumer.result()  # raises the exception of a consumer that failed


def test_reconciliation_agrees_during_sales(settings: Settings) -> None:
    """reconcile() finds no difference between Redis and PostgreSQL at any time during sales.

    A first buyer and then 60 buyers buy under `reserve`, while two consumers write the orders. Ten
    of the 60 keys already have an order under `redis`. The promises to these keys are broken: they
    get no second order, and their units are free again. The other 51 promises are settled.
    """
    sale = open_sale(200)
    buy_reserved(key="first", buyer="first")  # creates the sale's counter in Redis
    for number in range(0, 60, 6):
        buy(key=f"k{number}", buyer=f"b{number}", lock="redis")
    # `redis` does not decrement the counter, so it still includes the ten units.
    locks_client().decrby(counter_key(sale.pk), 10)

    def buy_one(number: int) -> str:
        try:
            return str(buy_reserved(key=f"k{number}", buyer=f"b{number}").body["outcome"])
        finally:
            connection.close()

    differences = []
    with run_consumers(2), ThreadPoolExecutor(4) as buyers:
        purchases = [buyers.submit(buy_one, number) for number in range(60)]
        while not all(purchase.done() for purchase in purchases):
            balance = reconcile(sale)
            differences.append((balance["undersold"], balance["overpromised"]))
    assert {purchase.result(PURCHASE_TIMEOUT_SECONDS) for purchase in purchases} == {"sold"}
    settle_all_promises()
    assert set(differences) == {(0, 0)}
    assert count_orders_and_stock() == (1 + 60, 200 - 61)  # of the first buyer and of the 60
    report = sale_report(sale.pk).as_dict()
    assert (report["settled"], report["broken_promises"], report["unsettled"]) == (51, 10, 0)
    lag = report["settlement_lag_ms"]
    assert 0 <= lag["p50"] <= lag["p99"] <= lag["max"]
    unpromised_units, _ = read_promises(sale.pk)
    assert unpromised_units == 200 - 61
