"""The responses to POST /buy: their statuses, headers and whole bodies.

Here they are checked for a few strategies. test_every_strategy.py checks each outcome under every
strategy.
"""

from functools import partial
from pathlib import Path

import pytest
from django.db import transaction
from django.test import Client

from shop.models import PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale.locked import LockInsideTransaction
from shop.sale.points import use_probe
from shop.schedules.interleaving import Interleaving
from shop.tests.database import connect_django_to
from shop.tests.outage import Outage
from shop.tests.purchases import (
    APPLE,
    SAMPLE_LOCK_STRATEGIES,
    SAMPLE_STRATEGIES,
    assert_retry_later,
    buy,
    committed,
    count_orders_and_stock,
    eventually,
    make_probe,
    open_sale,
    post_buy,
    rolled_back,
)

pytestmark = committed


# --- sold, sold out -----------------------------------------------------------------------------


@pytest.mark.parametrize("lock", SAMPLE_STRATEGIES)
def test_sold_unit_is_201(lock: str) -> None:
    """The response and the order have all fields. `none` has no lock, and only `redis` a fence."""
    sale = open_sale(3)
    reply = buy(lock=lock, buyer="ada", hold_ms=20)
    order = PurchaseHistory.objects.get()
    lock_body = reply.body["lock"]
    expected_lock: dict[str, object] = {"name": lock}
    if lock != "none":
        expected_lock |= {
            "waited_ms": lock_body["waited_ms"],
            "held_ms": lock_body["held_ms"],
            "fence": order.fence,
            "released": "released",
        }
        assert lock_body["waited_ms"] >= 0
        assert 20 <= lock_body["held_ms"] < 10_000
    assert reply.status == 201
    assert reply.body == {
        "outcome": "sold",
        "order": order.pk,
        "sale": sale.pk,
        "stock_seen": 3,
        "replayed": False,
        "lock": expected_lock,
    }
    assert "Retry-After" not in reply.headers
    assert (order.fence is not None) == (lock == "redis")
    assert (order.purchaser, order.product_name) == ("ada", APPLE)
    assert (order.lock, order.stock_seen) == (lock, 3)
    assert count_orders_and_stock() == (1, 2)


def test_body_overrides_query_and_query_overrides_defaults() -> None:
    """The defaults are the product `apple` and the lock `none`."""
    open_sale(3)
    form = "application/x-www-form-urlencoded"
    Client().post("/buy?lock=none&buyer=query", {"lock": "redis", "buyer": "body"})
    Client().post("/buy?lock=none", "lock=token&buyer=form", content_type=form)
    post_buy({"buyer": "ada"})
    orders = PurchaseHistory.objects.order_by("pk").values_list("product_name", "lock", "purchaser")
    assert list(orders) == [
        (APPLE, "redis", "body"),
        (APPLE, "token", "form"),
        (APPLE, "none", "ada"),
    ]


@pytest.mark.parametrize("released", ["expired", "unknown"])
@pytest.mark.parametrize("lock", SAMPLE_LOCK_STRATEGIES)
def test_purchase_is_201_if_its_lock_is_lost_after_the_commit(
    lock: str, released: str, redis_outage: Outage
) -> None:
    """The unit is sold, and the field `released` tells how the release of the lock failed.

    released  `expired`: the lock was deleted; `unknown`: Redis was killed
    """
    open_sale(1)
    lose_lock = locks_client().flushdb if released == "expired" else redis_outage.begin
    with use_probe(make_probe("after_commit", lose_lock)):
        reply = buy(lock=lock)
    assert (reply.status, reply.body["lock"]["released"]) == (201, released)
    assert count_orders_and_stock() == (1, 0)


# --- unavailable --------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", ["redis", "row-lock", "counter"])
def test_purchase_without_postgresql_is_503_unavailable(lock: str, tmp_path: Path) -> None:
    """During an outage of PostgreSQL a purchase is refused, and releases what it had acquired."""
    open_sale(1)
    with connect_django_to(tmp_path):  # no PostgreSQL server has its socket in this folder
        reply = buy(lock=lock)
    assert_retry_later(
        reply,
        "unavailable",
        "the database does not answer; nothing was sold: retry with the same key",
    )
    assert count_orders_and_stock() == (0, 1)
    assert buy(lock=lock).status == 201, "the lock, or the reserved unit, should be free again"


# --- the sale of the request -------------------------------------------------------------------


def test_waiting_buyer_gets_410_after_the_sale_closed() -> None:
    """A buyer requests a unit of a certain sale, which closes while the buyer waits for the lock.

    Without the number of the sale in the request, the buyer would get a unit of the next sale.
    """
    closed_sale = open_sale(5)
    with Interleaving() as threads:
        holder = threads.start(
            "holder", partial(buy, lock="redis", buyer="holder", sale=closed_sale.pk)
        )
        holder.run_to("after_read")
        waiter = threads.start(
            "waiter", partial(buy, lock="redis", buyer="waiter", sale=closed_sale.pk)
        )
        eventually(
            lambda: locks_client().zcard("lock:{redis:apple}:places") > 0,
            what="the waiter queues for the lock",
        )
        assert holder.finish().status == 201
        next_sale = open_sale(7)
        refusal = waiter.finish()
    assert refusal.body == {
        "outcome": "closed",
        "error": "The sale in the request is over; nothing was sold. Buy in the sale that is open.",
    }
    assert (refusal.status, next_sale.orders.count(), count_orders_and_stock()[1]) == (410, 0, 7)


# --- a lock inside a transaction, which would be free before the commit -------------------------


@rolled_back
def test_lock_inside_a_transaction_is_refused_before_it_is_requested() -> None:
    """A purchase inside a transaction raises at once, and does not first wait for the lock.

    pytest-django runs this test in a transaction, too, but the shop ignores that one. So the first
    purchase sells.
    """
    open_sale(1)
    assert buy(lock="token").status == 201
    # If the second purchase tried to acquire the lock, it would have to wait for this holder.
    locks_client().set("lock:token:apple", "another buyer's")
    with (
        transaction.atomic(),
        pytest.raises(LockInsideTransaction, match="Take the lock outside and open"),
    ):
        buy(lock="token")
