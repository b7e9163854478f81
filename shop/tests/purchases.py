"""Purchases of a test through POST /buy, checks of their answers, and probes that stop them."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from django.test import Client

from servers.tests.polling import eventually as eventually
from shop.models import Bucket, Product, PurchaseHistory, Sale, Unit
from shop.ops.redis import locks_client
from shop.reserve import settle
from shop.reserve.promises import STREAM
from shop.sale import opening
from shop.sale.points import Probe

APPLE = "apple"
#: Errors in the answers of the shop.
LOCK_SERVER_ERROR = "the lock's server does not answer; nothing was sold: retry with the same key"
TOKEN_ERROR = "The bearer token is missing or wrong. Send SHOP_RESTOCK_TOKEN along."
#: Seconds that a test waits for an event that always occurs.
TIMEOUT_SECONDS = 20
#: Strategies for tests of what all of them have in common.
SAMPLE_LOCK_STRATEGIES = ["token", "redis"]
SAMPLE_STRATEGIES = ["none", *SAMPLE_LOCK_STRATEGIES]

#: For a test whose transactions are committed, so that other threads see them. Only the tables of
#: the named app are emptied afterwards, which is five times faster than emptying all tables.
committed = pytest.mark.django_db(transaction=True, available_apps=["shop"])
#: For a test in a single thread: all changes are rolled back at its end.
rolled_back = pytest.mark.django_db


@dataclass(frozen=True, slots=True)
class JsonReply:
    """One answer of the shop: status, JSON body, headers."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


def open_sale(units: int, *, product: str = APPLE, lock: str | None = None) -> Sale:
    """Open a sale and return it.

    lock  the strategy that will sell the units; None: the server's strategy
    """
    return opening.restock(product=product, amount=units, lock=lock)


def buy(
    *, key: str | None = None, lock: str = "redis", buyer: str = "ada", **fields: Any
) -> JsonReply:
    """Send POST /buy with these fields. An exception in the view is raised in the test.

    key  the Idempotency-Key; None: no such header
    """
    return post_buy({"lock": lock, "buyer": buyer, **fields}, key=key)


def post_buy(body: Any, *, key: str | None = None) -> JsonReply:
    """Send POST /buy. A body that is text is sent as it is, any other is encoded as JSON."""
    headers = {} if key is None else {"Idempotency-Key": key}
    return parse_reply(
        Client().post("/buy", body, content_type="application/json", headers=headers)
    )


def parse_reply(response: Any) -> JsonReply:
    """Return the reply in a response of Django's test client. Asserts that it is JSON."""
    assert response.headers["Content-Type"] == "application/json", response.content
    return JsonReply(response.status_code, response.json(), response.headers)


def promise_orders(*keys: str) -> list[int]:
    """Buy with these keys under `reserve`, and return the numbers of the promised orders."""
    return [int(buy(key=key, buyer=key, lock="reserve").body["order"]) for key in keys]


def settle_all_promises() -> None:
    """Write all orders that the strategy `reserve` has promised."""
    while settle.settle_batch():
        pass


def count_orders_and_stock(product: str = APPLE) -> tuple[int, int]:
    """Settle all promises, then count the orders of all sales of a product, and its units left.

    The units are in the product's row, in buckets and in rows of single units.
    """
    with suppress(redis.RedisError):  # a test may call this during an outage of Redis
        if locks_client().exists(STREAM):
            settle_all_promises()
    orders = PurchaseHistory.objects.filter(product_name=product).count()
    in_row = Product.objects.get(name=product).amount
    in_buckets = Bucket.objects.filter(sale__product__name=product).values_list("amount", flat=True)
    single_units = Unit.objects.filter(sale__product__name=product).count()
    return orders, in_row + sum(in_buckets) + single_units


def count_units_by_table(sale: Sale) -> tuple[int, int, int]:
    """Return the units of a sale in the product's row, in buckets, and in rows of single units."""
    in_row = Product.objects.get(pk=sale.product_id).amount
    in_buckets = Bucket.objects.filter(sale=sale).values_list("amount", flat=True)
    return in_row, sum(in_buckets), Unit.objects.filter(sale=sale).count()


def make_probe(point: str, action: Callable[[], object]) -> Probe:
    """Return a probe that runs `action` once, when a buyer first reaches `point`.

    A probe is called at each point of a purchase.
    """
    has_run = False

    def probe(reached_point: str, facts: Mapping[str, object]) -> None:
        nonlocal has_run
        if reached_point == point and not has_run:
            has_run = True
            action()

    return probe


class FirstBuyerGate:
    """A probe that stops the first buyer inside the critical section.

    first_buyer_inside   set when the first buyer is inside
    may_continue  the test sets it, to let the first buyer continue
    purchase_count       purchases that have reached their strategy, also those that wait
    """

    def __init__(self) -> None:
        self.first_buyer_inside = threading.Event()
        self.may_continue = threading.Event()
        self.purchase_count = 0
        self._count_lock = threading.Lock()

    def __call__(self, point: str, facts: Mapping[str, object]) -> None:
        if point == "begins":
            with self._count_lock:
                self.purchase_count += 1
        elif point == "after_read" and not self.first_buyer_inside.is_set():
            self.first_buyer_inside.set()
            assert self.may_continue.wait(TIMEOUT_SECONDS)


def assert_retry_later(answer: JsonReply, outcome: str, error: str) -> None:
    """Assert that an answer is 503 with this outcome and error, and asks for a retry in 1 s."""
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.body == {"outcome": outcome, "error": error}


def assert_refused(answer: JsonReply, status: int, error: str, *allowed: str) -> None:
    """Assert that a request is refused without a retry, with this error and allowed values."""
    body: dict[str, Any] = {"outcome": "error", "error": error}
    if allowed:
        body["allowed"] = list(allowed)
    assert (answer.status, answer.body) == (status, body)
    assert "Retry-After" not in answer.headers


def get_json(path: str) -> JsonReply:
    """Send GET, and return the reply. Asserts that it is JSON."""
    return parse_reply(Client().get(path))


def expected_report(sale: Sale, **fields: Any) -> dict[str, Any]:
    """Return the report of an open sale of 3 apples without orders, updated with `fields`."""
    without_orders = {
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
        "settled": 0,
        "unsettled": 0,
        "broken_promises": 0,
        "settlement_lag_ms": None,
    }
    return without_orders | fields
