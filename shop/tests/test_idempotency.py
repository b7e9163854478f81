"""A key that has bought gets its order again, never a second unit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from pytest_django import Settings

from shop.demo.interleaving import Interleaving
from shop.models import PurchaseHistory
from shop.sale.checkout import check_out
from shop.sale.points import installed
from shop.sale.purchase import Attempt
from shop.tests.database import somebody_waits_for_a_row
from shop.tests.till import APPLE, EVERY, LOCKED, at, books, buy, committed, eventually, open_sale

pytestmark = committed

WAY = pytest.mark.parametrize("lock", EVERY)


@WAY
def test_without_a_key_asking_twice_buys_twice(lock: str) -> None:
    open_sale(5)
    assert [buy(lock=lock).status, buy(lock=lock).status] == [201, 201]
    assert books() == (2, 3)


@WAY
def test_the_same_key_gets_the_same_order_again(lock: str) -> None:
    sale = open_sale(5)
    first = buy(lock=lock, key="k1")
    again = buy(lock=lock, key="k1")
    assert (first.status, first.body["replayed"]) == (201, False)
    assert again.status == 200
    assert again.body == {
        "outcome": "sold",
        "order": first.body["order"],
        "sale": sale.pk,
        "stock_seen": 5,
        "replayed": True,
        "lock": {"name": lock},
    }
    assert books() == (1, 4)
    assert PurchaseHistory.objects.get().idempotency_key == "k1"


@WAY
def test_the_buyer_of_the_last_unit_gets_the_order_again_after_the_stock_is_gone(
    lock: str,
) -> None:
    open_sale(1)
    first = buy(lock=lock, key="k1")
    assert buy(lock=lock, key="k2").status == 409
    again = buy(lock=lock, key="k1")
    assert (again.status, again.body["order"]) == (200, first.body["order"])
    assert books() == (1, 0)


@WAY
def test_a_key_keeps_its_order_when_the_next_sale_is_open(lock: str) -> None:
    first_sale = open_sale(1)
    buy(lock=lock, key="k1")
    open_sale(7)
    again = buy(lock=lock, key="k1")
    assert (again.status, again.body["sale"]) == (200, first_sale.pk)
    assert books() == (1, 7)


def test_two_keys_are_two_purchases() -> None:
    open_sale(5)
    assert [buy(key=key).status for key in ("k1", "K1", "k1-")] == [201] * 3
    assert books() == (3, 2)


@pytest.mark.parametrize(
    "other",
    [{"buyer": "bob"}, {"lock": "none"}, {"hold_ms": 1}, {"product": "pear"}, {"sale": 1}],
    ids=lambda other: str(next(iter(other))),
)
@pytest.mark.parametrize("units", [5, 1], ids=["stock left", "sold out"])
def test_the_same_key_with_another_request_is_422(other: dict[str, Any], units: int) -> None:
    open_sale(units)
    open_sale(units, product="pear")
    buy(key="k1", buyer="ada", lock="redis")
    answer = buy(key="k1", **{"buyer": "ada", "lock": "redis", **other})
    assert answer.status == 422
    assert answer.body == {
        "outcome": "error",
        "error": "This Idempotency-Key came with another request before. "
        "Use a new key for a new purchase.",
    }
    assert "Retry-After" not in answer.headers
    assert books() == (1, units - 1)
    assert books("pear") == (0, units)


@WAY
def test_sold_out_stores_nothing_so_that_the_key_buys_in_the_next_sale(lock: str) -> None:
    open_sale(0)
    assert buy(lock=lock, key="k1").status == 409
    assert PurchaseHistory.objects.count() == 0
    open_sale(1)
    again = buy(lock=lock, key="k1")
    assert (again.status, again.body["replayed"]) == (201, False)


@pytest.mark.parametrize("lock", LOCKED)
def test_busy_stores_nothing_so_that_the_key_buys_later(lock: str, settings: Settings) -> None:
    open_sale(2)
    settings.SHOP_LOCK_WAIT = 0.02
    answers = []
    with installed(at("acquired", lambda: answers.append(buy(lock=lock, key="k1")))):
        buy(lock=lock, buyer="bob")
    assert answers[0].status == 503
    again = buy(lock=lock, key="k1")
    assert (again.status, again.body["replayed"]) == (201, False)
    assert books() == (2, 0)


@pytest.mark.parametrize("units", [5, 1])
def test_the_same_key_twice_at_once_buys_one_unit_without_any_lock(units: int) -> None:
    """Both have read the stock; the second one's write waits for the first one's commit."""
    open_sale(units)
    with Interleaving() as threads:
        a = threads.enter("A", partial(buy, lock="none", key="k1")).runs_to("after_read")
        b = threads.enter("B", partial(buy, lock="none", key="k1")).runs_to("after_read")
        a.runs_to("before_commit")
        b.starts()
        eventually(somebody_waits_for_a_row, what="B's write waits for A's")
        first = a.finishes()
        again = b.finishes()
    assert [first.status, again.status] == [201, 200]
    assert again.body["order"] == first.body["order"]
    assert again.body["replayed"] is True
    assert books() == (1, units - 1)


def test_the_same_key_twice_at_once_under_a_lock_buys_one_unit() -> None:
    open_sale(5)
    with Interleaving() as threads:
        a = threads.enter("A", partial(buy, lock="redis", key="k1")).runs_to("before_commit")
        b = threads.enter("B", partial(buy, lock="redis", key="k1"))
        first = a.finishes()
        again = b.finishes()
    assert [first.status, again.status] == [201, 200]
    assert books() == (1, 4)


def test_a_second_insert_of_a_key_waits_for_the_first_and_then_is_422() -> None:
    """Two products, so that nothing but the key itself makes B wait."""
    open_sale(1)
    open_sale(1, product="pear")
    with Interleaving() as threads:
        a = threads.enter("A", partial(buy, lock="none", key="k1")).runs_to("before_commit")
        b = threads.enter("B", partial(buy, lock="none", key="k1", product="pear"))
        b.runs_to("after_read").starts()
        eventually(somebody_waits_for_a_row, what="B's insert waits for A's")
        assert a.finishes().status == 201
        assert b.finishes().status == 422
    assert [books(), books("pear")] == [(1, 0), (0, 1)]


def test_a_second_insert_of_a_key_sells_when_the_first_is_rolled_back() -> None:
    attempt = Attempt(product=APPLE, buyer="ada", key="k1")
    open_sale(1)
    open_sale(1, product="pear")
    with Interleaving() as threads:
        a = threads.enter("A", partial(check_out, attempt)).runs_to("before_commit")
        b = threads.enter("B", partial(buy, lock="none", key="k1", product="pear"))
        b.runs_to("after_read").starts()
        eventually(somebody_waits_for_a_row, what="B's insert waits for A's")
        with pytest.raises(TimeoutError):
            a.fails(TimeoutError("given up"))
        assert b.finishes().status == 201
    assert [books(), books("pear")] == [(0, 1), (1, 0)]
