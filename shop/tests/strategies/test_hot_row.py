"""One product, many rows: `buckets` and `skip-locked`. Where its units lie, and that all are sold.

Forced interleavings: who takes the last unit, what those are answered who find it taken, and that
the units in every place and the orders are the stock, at any moment.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from shop.demo.interleaving import Actor, Interleaving
from shop.errors import Unavailable
from shop.tests.database import somebody_waits_for_a_row
from shop.tests.till import Answer, books, buy, committed, eventually, open_sale, places

pytestmark = committed

MANY_ROWS = ["buckets", "skip-locked"]
many_rows = pytest.mark.parametrize("lock", MANY_ROWS)


def waits(threads: Interleaving, name: str, call: Callable[[], Answer]) -> Actor:
    """A buyer who waits for a row that somebody else holds."""
    actor = threads.enter(name, call).starts()
    eventually(somebody_waits_for_a_row, what=f"{name} waits for a row")
    assert actor.is_between_points(), threads.log
    return actor


def asks(lock: str, buyer: str, **more: str) -> Callable[[], Answer]:
    return partial(buy, lock=lock, buyer=buyer, **more)


@pytest.fixture
def first_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody chooses the first bucket that has a unit."""
    monkeypatch.setattr(random, "choice", min)


def turns_back(buyer: Actor) -> None:
    """The buyer rolls back what it has done, and sells nothing."""
    assert buyer.fails(Unavailable()).status == 503


# --- buckets: the last unit is in another one ---------------------------------------------------


@pytest.mark.parametrize("a_turns_back", [False, True])
def test_of_two_who_come_for_the_last_unit_in_another_bucket_one_gets_it(
    a_turns_back: bool, first_bucket: None
) -> None:
    """Both find the first bucket emptied and go to the second, which has one unit."""
    sale = open_sale(2, lock="buckets")
    with Interleaving() as threads:
        late = [threads.enter(name, asks("buckets", name)).runs_to("after_read") for name in "AB"]
        assert buy(lock="buckets", buyer="early").status == 201
        a, b = (one.runs_to("after_read") for one in late)
        a.runs_to("before_commit")
        b.starts()
        eventually(somebody_waits_for_a_row, what="B waits for the last unit")
        if a_turns_back:
            turns_back(a)
        else:
            assert a.finishes().status == 201
        assert b.finishes().status == (201 if a_turns_back else 409)
    assert (books(), places(sale)) == ((2, 0), (0, 0, 0))
    assert threads.log.count("B after_read") >= 2, "it has looked again"


# --- skip-locked: all that is left is locked ----------------------------------------------------


@pytest.mark.parametrize("b_turns_back", [False, True])
def test_who_finds_every_unit_locked_waits_for_one_that_may_be_given_back(
    b_turns_back: bool,
) -> None:
    sale = open_sale(2, lock="skip-locked")
    with Interleaving() as threads:
        a = threads.enter("A", asks("skip-locked", "A")).runs_to("after_read")
        b = threads.enter("B", asks("skip-locked", "B")).runs_to("before_commit")
        c = waits(threads, "C", asks("skip-locked", "C"))
        assert a.finishes().status == 201
        assert c.is_between_points(), "B may still roll back"
        if b_turns_back:
            turns_back(b)
        else:
            assert b.finishes().status == 201
        assert c.finishes().status == (201 if b_turns_back else 409)
    assert (books(), places(sale)) == ((2, 0), (0, 0, 0))


def test_a_second_request_with_one_key_gives_its_unit_to_the_next() -> None:
    """Both have a unit until the first one commits; the second one then has an order already."""
    sale = open_sale(2, lock="skip-locked")
    with Interleaving() as threads:
        first = threads.enter("first", asks("skip-locked", "A", key="k1")).runs_to("before_commit")
        again = threads.enter("again", asks("skip-locked", "A", key="k1")).runs_to("after_read")
        again.starts()
        eventually(somebody_waits_for_a_row, what="the second request waits for the first")
        c = threads.enter("C", asks("skip-locked", "C")).starts()
        assert first.finishes().status == 201
        assert (again.finishes().status, c.finishes().status) == (200, 201)
    assert (books(), places(sale)) == ((2, 0), (0, 0, 0))


@many_rows
def test_two_buyers_of_two_units_do_not_wait_for_each_other(
    lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under row-lock the second one would wait: that is what the rows are for."""
    open_sale(2, lock=lock)
    with Interleaving() as threads:
        monkeypatch.setattr(random, "choice", min)
        a = threads.enter("A", asks(lock, "A")).runs_to("before_commit")
        monkeypatch.setattr(random, "choice", max)
        assert threads.enter("B", asks(lock, "B")).finishes().status == 201
        assert a.finishes().status == 201
    assert books() == (2, 0)
