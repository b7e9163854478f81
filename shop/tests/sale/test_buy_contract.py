"""POST /buy, row by row: every outcome with its status, its headers and its whole body."""

from functools import partial
from pathlib import Path

import pytest
from django.db import transaction
from django.test import Client

from shop.demo.interleaving import Interleaving
from shop.models import PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale.locked import LockInsideTransaction
from shop.sale.points import installed
from shop.tests.database import database_at
from shop.tests.outage import Outage
from shop.tests.till import (
    APPLE,
    EVERY,
    LOCKED,
    ask,
    assert_asks_to_come_back,
    at,
    books,
    buy,
    committed,
    eventually,
    open_sale,
    rolled_back,
)

pytestmark = committed


# --- sold, sold out -----------------------------------------------------------------------------


@pytest.mark.parametrize("lock", EVERY)
def test_a_unit_sold_is_201_with_its_order_sale_stock_seen_and_the_locks_outcome(lock: str) -> None:
    sale = open_sale(3)
    answer = buy(lock=lock, buyer="ada", hold_ms=20)
    order = PurchaseHistory.objects.get()
    reply = answer.body["lock"]
    of_lock = {
        "waited_ms": reply.get("waited_ms"),
        "held_ms": reply.get("held_ms"),
        "fence": order.fence,
        "released": "released",
    }
    assert answer.status == 201
    assert answer.body == {
        "outcome": "sold",
        "order": order.pk,
        "sale": sale.pk,
        "stock_seen": 3,
        "replayed": False,
        "lock": {"name": lock, **({} if lock == "none" else of_lock)},
    }
    assert "Retry-After" not in answer.headers
    assert lock == "none" or (reply["waited_ms"] >= 0 and 20 <= reply["held_ms"] < 10_000)
    assert (order.fence is not None) == (lock == "redis")
    assert (order.purchaser, order.product_name, order.lock, order.stock_seen) == (
        *("ada", APPLE, lock, 3),
    )
    assert books() == (1, 2)


def test_the_body_goes_before_the_query_and_a_default_is_an_apple_without_a_lock() -> None:
    open_sale(3)
    form = "application/x-www-form-urlencoded"
    Client().post("/buy?lock=none&buyer=query", {"lock": "redis", "buyer": "body"})
    Client().post("/buy?lock=none", "lock=token&buyer=form", content_type=form)
    ask({"buyer": "ada"})
    orders = PurchaseHistory.objects.order_by("pk").values_list("product_name", "lock", "purchaser")
    expected = [("redis", "body"), ("token", "form"), ("none", "ada")]
    assert list(orders) == [(APPLE, *each) for each in expected]


@pytest.mark.parametrize("released", ["expired", "unknown"])
@pytest.mark.parametrize("lock", LOCKED)
def test_a_lock_lost_after_the_commit_leaves_the_answer_201_and_says_what_became_of_it(
    lock: str, released: str, redis_outage: Outage
) -> None:
    open_sale(1)
    lose = locks_client().flushdb if released == "expired" else redis_outage.begin
    with installed(at("after_commit", lose)):
        answer = buy(lock=lock)
    assert (answer.status, answer.body["lock"]["released"]) == (201, released)
    assert books() == (1, 0)


# --- unavailable --------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", ["redis", "row-lock", "counter"])
def test_without_postgresql_a_sale_is_503_unavailable(lock: str, tmp_path: Path) -> None:
    open_sale(1)
    with database_at(tmp_path):  # nobody listens there
        answer = buy(lock=lock)
    assert_asks_to_come_back(
        answer, "unavailable", "the database does not answer; nothing was sold"
    )
    assert books() == (0, 1)
    assert buy(lock=lock).status == 201, "the lock was released, and no unit is reserved"


# --- the sale that its buyer came for -----------------------------------------------------------


def test_who_waited_for_the_lock_until_the_next_sale_was_open_is_410() -> None:
    """Without the sale in its request the unit would be sold out of the next one."""
    first = open_sale(5)
    with Interleaving() as run:
        holder = run.enter("holder", partial(buy, lock="redis", buyer="holder", sale=first.pk))
        holder.runs_to("after_read")
        waiter = run.enter("waiter", partial(buy, lock="redis", buyer="waiter", sale=first.pk))
        waiter.starts()
        eventually(
            lambda: locks_client().zcard("lock:{redis:apple}:places") > 0,
            what="the waiter queues for the lock",
        )
        assert holder.finishes().status == 201
        second = open_sale(7)
        refused = waiter.finishes()
    assert refused.body == {
        "outcome": "closed",
        "error": "The sale that you came for is over; nothing was sold. Buy in the one that is "
        "open.",
    }
    assert (refused.status, second.orders.count(), books()[1]) == (410, 0, 7)


# --- a lock inside the transaction is free before the commit: refused --------------------------


@rolled_back
def test_a_lock_is_not_even_asked_for_in_a_transaction_and_that_of_a_test_is_not_counted() -> None:
    open_sale(1)
    assert buy(lock="token").status == 201
    locks_client().set("lock:token:apple", "another buyer's")  # asked for, it would be waited for
    with (
        transaction.atomic(),
        pytest.raises(LockInsideTransaction, match="Take the lock outside and open the trans"),
    ):
        buy(lock="token")
