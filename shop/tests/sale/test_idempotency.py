"""A key that has bought gets its order again, never a second unit."""

from functools import partial
from typing import Any

import pytest

from shop.demo.interleaving import Interleaving
from shop.models import PurchaseHistory
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt
from shop.tests.database import somebody_waits_for_a_row
from shop.tests.till import APPLE, assert_refused, books, buy, committed, eventually, open_sale

pytestmark = committed


def test_without_a_key_asking_twice_buys_twice_and_with_two_keys_too() -> None:
    open_sale(9)
    assert [buy(key=key).status for key in (None, None, "k1", "K1", "k1-")] == [201] * 5
    assert books() == (5, 4)


@pytest.mark.parametrize(
    "other",
    [{"buyer": "bob"}, {"lock": "none"}, {"hold_ms": 1}, {"product": "pear"}, {"sale": 1}],
    ids=lambda other: str(next(iter(other))),
)
def test_the_same_key_with_another_request_is_422(other: dict[str, Any]) -> None:
    open_sale(1)
    open_sale(1, product="pear")
    buy(key="k1", buyer="ada", lock="redis")
    answer = buy(key="k1", **{"buyer": "ada", "lock": "redis", **other})
    said = (
        "This Idempotency-Key came with another request before. Use a new key for a new purchase."
    )
    assert_refused(answer, 422, said)
    assert [books(), books("pear")] == [(1, 0), (0, 1)]


def test_sold_out_stores_nothing_so_that_the_key_buys_in_the_next_sale() -> None:
    open_sale(0)
    assert buy(key="k1").status == 409
    assert PurchaseHistory.objects.count() == 0
    open_sale(1)
    again = buy(key="k1")
    assert (again.status, again.body["replayed"]) == (201, False)


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


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_second_insert_of_a_key_waits_for_the_first_and_sells_only_if_that_is_rolled_back(
    rolled_back: bool,
) -> None:
    """Two products, so that nothing but the key itself makes B wait."""
    open_sale(1)
    open_sale(1, product="pear")
    attempt = Attempt(product=APPLE, buyer="ada", key="k1")
    with Interleaving() as threads:
        a = threads.enter("A", partial(check_out, attempt)).runs_to("before_commit")
        b = threads.enter("B", partial(buy, lock="none", key="k1", product="pear"))
        b.runs_to("after_read").starts()
        eventually(somebody_waits_for_a_row, what="B's insert waits for A's")
        if rolled_back:
            with pytest.raises(TimeoutError):
                a.starts(TimeoutError("given up")).finishes()
        else:
            a.finishes()
        assert b.finishes().status == (201 if rolled_back else 422)
    assert [books(), books("pear")] == ([(0, 1), (1, 0)] if rolled_back else [(1, 0), (0, 1)])
