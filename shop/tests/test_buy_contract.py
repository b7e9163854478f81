"""POST /buy, row by row: every outcome with its status, its headers and its whole body."""

from __future__ import annotations

import threading
import time

import pytest
from django.test import Client
from pytest_django import Settings

from shop.models import Product, PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale import stock
from shop.sale.points import installed
from shop.tests.outage import Outage
from shop.tests.till import (
    APPLE,
    EVERY,
    LOCKED,
    answer_of,
    ask,
    assert_asks_to_come_back,
    at,
    books,
    buy,
    committed,
    open_sale,
)

pytestmark = committed


# --- sold, sold out -----------------------------------------------------------------------------


def test_a_unit_sold_without_a_lock_is_201_with_order_sale_and_stock_seen() -> None:
    sale = open_sale(3)
    answer = buy(lock="none", buyer="ada")
    order = PurchaseHistory.objects.get()
    assert answer.status == 201
    assert answer.body == {
        "outcome": "sold",
        "order": order.pk,
        "sale": sale.pk,
        "stock_seen": 3,
        "replayed": False,
        "lock": {"name": "none"},
    }
    assert "Retry-After" not in answer.headers
    assert (order.purchaser, order.product_name, order.lock, order.stock_seen, order.fence) == (
        *("ada", APPLE, "none", 3, None),
    )
    assert books() == (1, 2)


@pytest.mark.parametrize("lock", LOCKED)
def test_the_answer_to_a_sale_under_a_lock_contains_the_locks_outcome(lock: str) -> None:
    sale = open_sale(3)
    answer = buy(lock=lock, buyer="ada", hold_ms=20)
    order = PurchaseHistory.objects.get()
    reply = answer.body["lock"]
    assert answer.status == 201
    assert answer.body == {
        "outcome": "sold",
        "order": order.pk,
        "sale": sale.pk,
        "stock_seen": 3,
        "replayed": False,
        "lock": {
            "name": lock,
            "waited_ms": reply["waited_ms"],
            "held_ms": reply["held_ms"],
            "fence": order.fence,
            "released": "released",
        },
    }
    assert reply["waited_ms"] >= 0
    assert 20 <= reply["held_ms"] < 10_000
    assert (order.fence is not None) == (lock == "redis")
    assert books() == (1, 2)


@pytest.mark.parametrize("lock", EVERY)
def test_no_stock_is_409_sold_out(lock: str) -> None:
    open_sale(0)
    answer = buy(lock=lock)
    assert answer.status == 409
    assert answer.body == {"outcome": "sold_out", "error": "No unit is left."}
    assert "Retry-After" not in answer.headers
    assert books() == (0, 0)


def test_a_request_may_be_a_form_json_or_a_query() -> None:
    open_sale(9)
    wish = {"buyer": "ada", "lock": "redis", "product": APPLE, "hold_ms": "0"}
    client = Client()
    answers = [
        client.post("/buy", wish),
        client.post("/buy", wish, content_type="application/json"),
        client.post("/buy", query_params=wish),
        client.post(
            "/buy",
            "buyer=ada&lock=redis",
            content_type="application/x-www-form-urlencoded",
        ),
    ]
    assert [answer_of(answer).status for answer in answers] == [201] * 4
    assert books() == (4, 5)


def test_the_body_goes_before_the_query() -> None:
    open_sale(1)
    Client().post("/buy?lock=none&buyer=query", {"lock": "redis", "buyer": "body"})
    order = PurchaseHistory.objects.get()
    assert (order.lock, order.purchaser) == ("redis", "body")


def test_without_product_and_lock_an_apple_is_sold_without_a_lock() -> None:
    open_sale(1)
    ask({"buyer": "ada"})
    order = PurchaseHistory.objects.get()
    assert (order.product_name, order.lock) == (APPLE, "none")


# --- busy, lost ---------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", LOCKED)
def test_a_lock_that_somebody_else_holds_is_503_busy(lock: str, settings: Settings) -> None:
    open_sale(1)
    settings.SHOP_LOCK_WAIT = 0.05
    answers = []
    with installed(at("acquired", lambda: answers.append(buy(lock=lock, buyer="bob")))):
        assert buy(lock=lock, buyer="ada").status == 201
    assert_asks_to_come_back(
        answers[0],
        "busy",
        "The lock was not free in time; nothing was sold. Ask again with the same key.",
    )
    assert books() == (1, 0)
    assert PurchaseHistory.objects.get().purchaser == "ada"


def test_a_lease_that_was_fenced_off_before_its_claim_is_503_lost() -> None:
    open_sale(1)

    def a_later_holder_claims() -> None:
        Product.objects.filter(name=APPLE).update(fence=time.time_ns() // 1000 + 1_000_000)

    with installed(at("acquired", a_later_holder_claims)):
        answer = buy(lock="redis")
    assert_asks_to_come_back(
        answer, "lost", "fenced off: a newer holder has claimed this product; nothing was sold"
    )
    assert books() == (0, 1)


def test_a_restock_between_read_and_write_is_503_lost_without_a_lock() -> None:
    old = open_sale(1)
    with installed(at("after_read", lambda: set_by_another_thread(5))):
        answer = buy(lock="none")
    assert_asks_to_come_back(
        answer,
        "lost",
        "The sale was closed meanwhile; nothing was sold. Ask again with the same key.",
    )
    assert books() == (0, 5)
    old.refresh_from_db()
    assert old.final_stock == 1


def set_by_another_thread(units: int) -> None:
    """A restock on a connection of its own."""
    from django.db import connections

    def run() -> None:
        try:
            stock.restock(product=APPLE, amount=units)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("lock", LOCKED)
def test_a_lock_that_expired_after_the_commit_leaves_the_answer_201_and_says_expired(
    lock: str,
) -> None:
    open_sale(1)
    with installed(at("after_commit", locks_client().flushdb)):
        answer = buy(lock=lock)
    assert (answer.status, answer.body["lock"]["released"]) == (201, "expired")
    assert books() == (1, 0)


@pytest.mark.parametrize("lock", LOCKED)
def test_a_lock_server_that_dies_after_the_commit_leaves_the_answer_201_and_says_unknown(
    lock: str, redis_outage: Outage
) -> None:
    open_sale(1)
    with installed(at("after_commit", redis_outage.begin)):
        answer = buy(lock=lock)
    assert (answer.status, answer.body["lock"]["released"]) == (201, "unknown")
    assert books() == (1, 0)
