"""The header Idempotency-Key: a repeated request gets its earlier order, never a second unit."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pytest_django import Settings

from shop.errors import UnknownProduct, WrongStrategy
from shop.models import PurchaseHistory
from shop.sale import known_products, opening
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt
from shop.schedules.interleaving import Interleaving
from shop.tests.database import has_waiting_statement
from shop.tests.purchases import (
    APPLE,
    assert_refused,
    buy,
    committed,
    count_orders_and_stock,
    eventually,
    open_sale,
)

pytestmark = committed


def test_requests_without_a_key_or_with_different_keys_each_buy() -> None:
    """Keys that differ only in case are different keys."""
    open_sale(9)
    assert [buy(key=key).status for key in (None, None, "k1", "K1", "k1-")] == [201] * 5
    assert count_orders_and_stock() == (5, 4)


@pytest.mark.parametrize(
    "difference",
    [{"buyer": "bob"}, {"lock": "none"}, {"hold_ms": 1}, {"product": "pear"}, {"sale": 1}],
    ids=["buyer", "lock", "hold_ms", "product", "sale"],
)
def test_reused_key_with_a_different_request_is_422(difference: dict[str, Any]) -> None:
    """A second request with the same key differs in one field from the request that bought.

    difference  that field, with its new value
    """
    open_sale(1)
    open_sale(1, product="pear")
    buy(key="k1", buyer="ada", lock="redis")
    reply = buy(key="k1", **{"buyer": "ada", "lock": "redis", **difference})
    error = (
        "This Idempotency-Key was already used for a different request. Use a new key for a new "
        "request."
    )
    assert_refused(reply, 422, error)
    assert [count_orders_and_stock(), count_orders_and_stock("pear")] == [(1, 0), (0, 1)]


@pytest.mark.parametrize("is_sale_closed", [False, True])
def test_order_is_found_after_the_strategy_changed(
    settings: Settings, is_sale_closed: bool
) -> None:
    """A key has an order under `redis`, and then the shop changes to `buckets`.

    The key still gets its order. A new key is refused: the units of the open sale are not in the
    rows of `buckets` (WrongStrategy), or no sale is open (UnknownProduct).
    """
    settings.SHOP_DEMO = False
    open_sale(2)
    attempt = Attempt(product=APPLE, buyer="ada", lock="redis", key="k1")
    order_id = check_out(attempt).order_id
    if is_sale_closed:
        opening.close_open_sale(product=APPLE)
    receipt = check_out(replace(attempt, lock="buckets"))
    assert (receipt.order_id, receipt.replayed) == (order_id, True)
    with pytest.raises(UnknownProduct if is_sale_closed else WrongStrategy):
        check_out(replace(attempt, lock="buckets", key="k2"))


@pytest.mark.parametrize("lock", ["none", "redis", "buckets", "counter"])
def test_order_of_a_closed_sale_is_found_after_a_restart(lock: str) -> None:
    """A repeated request gets its order after the close of the sale, even in a new process.

    In a new process the cache of known products is empty. A request with a new key is refused.
    """
    open_sale(2, lock=lock)
    first = buy(key="k1", lock=lock)
    opening.close_open_sale(product=APPLE)
    known_products._known_products.clear()  # as in a process that has just started
    retry = buy(key="k1", lock=lock)
    assert (retry.status, retry.body["order"]) == (200, first.body["order"])
    assert buy(key="k2", lock=lock).status == 404


def test_refused_key_can_buy_in_the_next_sale() -> None:
    """A refusal is not stored under the key, so a retry buys as soon as there are units."""
    open_sale(0)
    assert buy(key="k1").status == 409
    assert PurchaseHistory.objects.count() == 0
    open_sale(1)
    retry = buy(key="k1")
    assert (retry.status, retry.body["replayed"]) == (201, False)


@pytest.mark.parametrize("units", [5, 1])
def test_concurrent_requests_with_one_key_buy_one_unit(units: int) -> None:
    """Under `none` both requests read the stock, and the second write waits for the first commit.

    Then the second request finds the order of the key.
    """
    open_sale(units)
    with Interleaving() as threads:
        a = threads.start("A", partial(buy, lock="none", key="k1")).run_to("after_read")
        b = threads.start("B", partial(buy, lock="none", key="k1")).run_to("after_read")
        a.run_to("before_commit")
        b.resume()
        eventually(has_waiting_statement, what="B's write waits for A's")
        first = a.finish()
        second = b.finish()
    assert [first.status, second.status] == [201, 200]
    assert second.body["order"] == first.body["order"]
    assert second.body["replayed"] is True
    assert count_orders_and_stock() == (1, units - 1)


@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_second_insert_of_a_key_waits_for_the_first(is_rolled_back: bool) -> None:
    """A and B use one key for different products, and B waits until A's transaction has ended.

    B buys only if A is rolled back. The products differ, so B waits for the key, and not for A's
    product row.
    """
    open_sale(1)
    open_sale(1, product="pear")
    attempt = Attempt(product=APPLE, buyer="ada", key="k1")
    with Interleaving() as threads:
        a = threads.start("A", partial(check_out, attempt)).run_to("before_commit")
        b = threads.start("B", partial(buy, lock="none", key="k1", product="pear"))
        b.run_to("after_read").resume()
        eventually(has_waiting_statement, what="B's insert waits for A's")
        if is_rolled_back:
            with pytest.raises(TimeoutError):
                a.resume(TimeoutError("rolled back by the test")).finish()
        else:
            a.finish()
        assert b.finish().status == (201 if is_rolled_back else 422)
    sold = (1, 0)
    unsold = (0, 1)
    assert count_orders_and_stock() == (unsold if is_rolled_back else sold)
    assert count_orders_and_stock("pear") == (sold if is_rolled_back else unsold)
