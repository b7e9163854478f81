"""Helpers for tests that buy: they send POST /buy, check the answers, and stop buyers halfway.

A probe stops a buyer. A probe is a function that the shop calls at each point of a purchase, a
named place in its code such as `after_read` (shop/sale/points.py).
"""

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
#: The `error` in an answer of the shop if the server of a lock, such as Redis, is down.
LOCK_SERVER_ERROR = "the lock's server does not answer; nothing was sold: retry with the same key"
#: The `error` in an answer of the shop to a restock without the right bearer token.
TOKEN_ERROR = "The bearer token is missing or wrong. Send SHOP_RESTOCK_TOKEN along."
#: Maximum time that a test waits for an event. The event always occurs, so no test is this slow.
TIMEOUT_SECONDS = 20
#: A few strategies, for tests of behaviour that is the same under every strategy.
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
    """Send POST /buy with these fields, and return the reply.

    Django's test client raises an exception of the view in the test, instead of returning 500.

    lock  the strategy that guards the stock during the purchase
    key   the Idempotency-Key; None: no such header
    """
    return post_buy({"lock": lock, "buyer": buyer, **fields}, key=key)


def post_buy(body: Any, *, key: str | None = None) -> JsonReply:
    """Send POST /buy, and return the reply.

    body  a text, which is sent unchanged, or an object, which is encoded as JSON
    key   the Idempotency-Key; None: no such header
    """
    headers = {} if key is None else {"Idempotency-Key": key}
    return parse_reply(
        Client().post("/buy", body, content_type="application/json", headers=headers)
    )


def parse_reply(response: Any) -> JsonReply:
    """Convert a response of Django's test client to a JsonReply. Asserts that its body is JSON."""
    assert response.headers["Content-Type"] == "application/json", response.content
    return JsonReply(response.status_code, response.json(), response.headers)


def promise_orders(*keys: str) -> list[int]:
    """Buy one unit for each Idempotency-Key with the strategy `reserve`.

    Return the numbers of the orders. They are promised: Redis has sold the units, but the orders
    are not in the database yet. settle_all_promises() writes them.
    """
    return [int(buy(key=key, buyer=key, lock="reserve").body["order"]) for key in keys]


def settle_all_promises() -> None:
    """Write the orders of all promises, units that Redis has sold under the strategy `reserve`."""
    while settle.settle_batch():  # returns 0 when no promise is left
        pass


def count_orders_and_stock(product: str = APPLE) -> tuple[int, int]:
    """Return the number of orders of a product, over all its sales, and its number of units left.

    Orders that the strategy `reserve` has promised are written first, so they count, too. The units
    left are those in the product's row and, for strategies that split the stock, those in the rows
    of buckets (several units a row) and of single units.
    """
    with suppress(redis.RedisError):  # a test may call this function during an outage of Redis
        if locks_client().exists(STREAM):
            settle_all_promises()
    orders = PurchaseHistory.objects.filter(product_name=product).count()
    in_row = Product.objects.get(name=product).amount
    in_buckets = Bucket.objects.filter(sale__product__name=product).values_list("amount", flat=True)
    single_units = Unit.objects.filter(sale__product__name=product).count()
    return orders, in_row + sum(in_buckets) + single_units


def count_units_by_table(sale: Sale) -> tuple[int, int, int]:
    """Return where the unsold units of a sale are, as three numbers.

    They are the units in the product's row, the units in the rows of buckets (several units a row),
    and the number of rows of single units.
    """
    in_row = Product.objects.get(pk=sale.product_id).amount
    in_buckets = Bucket.objects.filter(sale=sale).values_list("amount", flat=True)
    return in_row, sum(in_buckets), Unit.objects.filter(sale=sale).count()


def make_probe(point: str, action: Callable[[], object]) -> Probe:
    """Return a probe that runs `action` once, when a buyer first reaches `point`.

    A probe is a function that the shop calls at each point of a purchase, a named place in its code
    such as `after_read`.
    """
    has_run = False

    def probe(reached_point: str, fields: Mapping[str, object]) -> None:
        nonlocal has_run
        if reached_point == point and not has_run:
            has_run = True
            action()

    return probe


class FirstBuyerGate:
    """A probe that stops the first buyer inside the critical section.

    A probe is called at each point of a purchase, a named place in the shop's code.

    first_buyer_inside  set by the gate when the first buyer is inside
    may_continue        set by the test to let the first buyer continue
    purchase_count      number of purchases that have reached their strategy (the point `begins`),
                        including those that wait for a lock
    """

    def __init__(self) -> None:
        self.first_buyer_inside = threading.Event()
        self.may_continue = threading.Event()
        self.purchase_count = 0
        self._count_lock = threading.Lock()

    def __call__(self, point: str, fields: Mapping[str, object]) -> None:
        """Count a purchase at its point `begins`. Stop the first buyer at the point `after_read`.

        A buyer reaches `after_read` inside the critical section, after the read of the stock.
        """
        if point == "begins":
            with self._count_lock:
                self.purchase_count += 1
        elif point == "after_read" and not self.first_buyer_inside.is_set():
            self.first_buyer_inside.set()
            assert self.may_continue.wait(TIMEOUT_SECONDS)


def assert_retry_later(answer: JsonReply, outcome: str, error: str) -> None:
    """Assert that an answer is 503 with this outcome and error, and with `Retry-After: 1`."""
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.body == {"outcome": outcome, "error": error}


def assert_refused(answer: JsonReply, status: int, error: str, *allowed: str) -> None:
    """Assert that an answer refuses a request for good: it has no Retry-After header.

    error    the expected text of `error`
    allowed  the expected values of `allowed`; if there are none, the answer has no such field
    """
    body: dict[str, Any] = {"outcome": "error", "error": error}
    if allowed:
        body["allowed"] = list(allowed)
    assert (answer.status, answer.body) == (status, body)
    assert "Retry-After" not in answer.headers


def get_json(path: str) -> JsonReply:
    """Send a GET request, and return the reply. Asserts that its body is JSON."""
    return parse_reply(Client().get(path))


def expected_report(sale: Sale, **fields: Any) -> dict[str, Any]:
    """Return the expected report of a sale of 3 apples.

    fields  fields that differ from those of an open sale without orders
    """
    report_without_orders = {
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
    return report_without_orders | fields
