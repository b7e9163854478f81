"""The strategies `buckets` and `skip-locked`, which divide the units of a sale among many rows.

`buckets` has some rows with many units each, `skip-locked` a row for each unit. The tests check
where the units are stored and counted, and which of several concurrent buyers gets the last unit.
"""

import json
import random
from collections.abc import Callable
from functools import partial

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from shop.errors import BadInput, Unavailable
from shop.sale import opening, reports
from shop.schedules.interleaving import Interleaving, StoppingActor
from shop.strategies import skip_locked
from shop.tests.database import has_waiting_statement
from shop.tests.purchases import (
    APPLE,
    JsonReply,
    buy,
    committed,
    count_orders_and_stock,
    count_units_by_table,
    eventually,
    get_json,
    open_sale,
)

pytestmark = committed

on_many_rows = pytest.mark.parametrize("lock", ["buckets", "skip-locked"])


def expected_units_by_table(lock: str, units: int) -> tuple[int, int, int]:
    """Return where `buckets` or `skip-locked` stores the units of a new sale.

    Like count_units_by_table(), it returns the units in the product's row, in buckets, and in rows
    of single units.
    """
    return (0, units, 0) if lock == "buckets" else (0, 0, units)


# --- where the units are stored -----------------------------------------------------------------


@on_many_rows
def test_restock_stores_the_units_for_the_servers_strategy(lock: str, settings: Settings) -> None:
    """Except in a demo, the rows in which a restock stores the units depend on SHOP_LOCK."""
    settings.SHOP_DEMO = False
    settings.SHOP_LOCK = lock
    assert count_units_by_table(open_sale(20)) == expected_units_by_table(lock, 20)
    settings.SHOP_LOCK = "row-lock"
    assert count_units_by_table(open_sale(20)) == (20, 0, 0)


@on_many_rows
def test_restock_stores_20_000_units_with_one_insert(lock: str) -> None:
    """The number of queries of a restock does not grow with the number of units."""
    open_sale(1)  # the counted restock has to close this sale
    with CaptureQueriesContext(connection) as queries:
        sale = open_sale(20_000, lock=lock)
    inserts = [query for query in queries if query["sql"].startswith("INSERT INTO")]
    assert len(inserts) == 2, "one for the sale, one for its units"
    assert len(queries) < 20
    assert count_units_by_table(sale) == expected_units_by_table(lock, 20_000)


def test_sale_of_too_many_units_is_refused() -> None:
    """`skip-locked` would need more than MAX_UNITS rows. The previous sale stays open."""
    sale = open_sale(1)
    with pytest.raises(BadInput, match="is too large for this strategy"):
        open_sale(skip_locked.MAX_UNITS + 1, lock="skip-locked")
    assert (count_units_by_table(sale), buy(lock="row-lock").status) == ((1, 0, 0), 201)


# --- how the units are counted ------------------------------------------------------------------


@on_many_rows
def test_every_report_adds_up_the_units_of_many_rows(
    lock: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stock of 20 - 3 units is the same in the HTTP API, the commands and the closed sale."""
    sale = open_sale(20, lock=lock)
    assert [buy(lock=lock, buyer=f"b{number}").status for number in range(3)] == [201] * 3
    report = reports.sale_report(sale.pk).as_dict()
    assert (report["orders"], report["stock_left"], report["lost_updates"]) == (3, 17, 0)
    assert get_json(f"/sales/{sale.pk}").body["stock_left"] == 17
    assert reports.read_recent_reports(APPLE)[0]["stock_left"] == 17
    call_command("sale_report", "--json")
    assert json.loads(capsys.readouterr().out)["stock_left"] == 17
    opening.close_open_sale(product=APPLE)
    sale.refresh_from_db()
    assert (sale.final_stock, count_units_by_table(sale)) == (17, (17, 0, 0))


@on_many_rows
def test_only_the_strategy_of_a_sale_finds_its_units(lock: str) -> None:
    """A sale is opened for one strategy. Any other strategy looks for units in other rows.

    A buyer under such a strategy is refused (409), although units are left.
    """
    open_sale(3)
    refusal = buy(lock=lock)
    assert (refusal.status, count_orders_and_stock()) == (409, (0, 3))
    assert "Open one for this lock with POST /restock." in refusal.body["error"]
    sale = open_sale(3, lock=lock)
    assert buy(lock=lock).status == 201
    for other_lock in ("row-lock", "conditional", "redis"):
        assert buy(lock=other_lock, buyer="bob").status == 409
    assert count_orders_and_stock() == (1, 2)
    assert buy(lock=lock, buyer="eve").status == 201
    assert reports.sale_report(sale.pk).lost_updates == 0


# --- helpers for the interleavings --------------------------------------------------------------


def start_waiting_buyer(
    threads: Interleaving, name: str, call: Callable[[], JsonReply]
) -> StoppingActor:
    """Start a buyer, and return it as soon as it waits for a row that another buyer has locked."""
    actor = threads.start(name, call)
    eventually(has_waiting_statement, what=f"{name} waits for a row")
    assert actor.is_between_steps(), threads.log
    return actor


def prepare_purchase(lock: str, buyer: str, **fields: str) -> Callable[[], JsonReply]:
    """Return a function that buys under this strategy, for a thread of an Interleaving."""
    return partial(buy, lock=lock, buyer=buyer, **fields)


@pytest.fixture
def choose_first_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every buyer choose the bucket with the lowest number that has a unit."""
    monkeypatch.setattr(random, "choice", min)  # instead of a random number


def roll_back(buyer: StoppingActor) -> None:
    """Raise Unavailable in a buyer who is stopped before the commit, so that it rolls back."""
    assert buyer.resume(Unavailable()).finish().status == 503


# --- buckets: the last unit is in another bucket ------------------------------------------------


@pytest.mark.parametrize("a_rolls_back", [False, True])
def test_last_unit_of_the_second_bucket_is_sold_once(
    a_rolls_back: bool, choose_first_bucket: None
) -> None:
    """Buyers A and B choose the first of two buckets, but a third buyer takes its only unit.

    Both then try the second bucket. B gets the last unit only if A rolls back.
    """
    sale = open_sale(2, lock="buckets")
    with Interleaving() as threads:
        a = threads.start("A", prepare_purchase("buckets", "A")).run_to("after_read")
        b = threads.start("B", prepare_purchase("buckets", "B")).run_to("after_read")
        assert buy(lock="buckets", buyer="third").status == 201
        a.run_to("after_read")  # A tries again, and reads the second bucket
        b.run_to("after_read")
        a.run_to("before_commit")
        b.resume()
        eventually(has_waiting_statement, what="B waits for the last unit")
        if a_rolls_back:
            roll_back(a)
        else:
            assert a.finish().status == 201
        assert b.finish().status == (201 if a_rolls_back else 409)
    assert (count_orders_and_stock(), count_units_by_table(sale)) == ((2, 0), (0, 0, 0))
    assert threads.log.count("B after_read") >= 2, "B should have read both buckets"


# --- skip-locked: every remaining unit is locked ------------------------------------------------


@pytest.mark.parametrize("b_rolls_back", [False, True])
def test_buyer_waits_while_every_unit_is_locked(b_rolls_back: bool) -> None:
    """Buyers A and B have locked both units, so C waits. C gets B's unit if B rolls back."""
    sale = open_sale(2, lock="skip-locked")
    with Interleaving() as threads:
        a = threads.start("A", prepare_purchase("skip-locked", "A")).run_to("after_read")
        b = threads.start("B", prepare_purchase("skip-locked", "B")).run_to("before_commit")
        c = start_waiting_buyer(threads, "C", prepare_purchase("skip-locked", "C"))
        assert a.finish().status == 201
        # C has been started, but has not reached a point of its purchase yet.
        assert c.is_between_steps(), "C should wait, because B may still roll back"
        if b_rolls_back:
            roll_back(b)
        else:
            assert b.finish().status == 201
        assert c.finish().status == (201 if b_rolls_back else 409)
    assert (count_orders_and_stock(), count_units_by_table(sale)) == ((2, 0), (0, 0, 0))


def test_concurrent_repeat_of_a_request_returns_its_unit() -> None:
    """Buyer A sends a request twice at the same time, and each of the two requests locks a unit.

    The second request is answered with the order of the first request, and releases its own unit.
    Buyer C buys that unit.
    """
    sale = open_sale(2, lock="skip-locked")
    request = prepare_purchase("skip-locked", "A", key="k1")
    with Interleaving() as threads:
        first = threads.start("first", request).run_to("before_commit")
        second = threads.start("second", request).run_to("after_read")
        second.resume()
        eventually(has_waiting_statement, what="the second request waits for the first")
        c = threads.start("C", prepare_purchase("skip-locked", "C"))
        assert first.finish().status == 201
        assert (second.finish().status, c.finish().status) == (200, 201)
    assert (count_orders_and_stock(), count_units_by_table(sale)) == ((2, 0), (0, 0, 0))


@on_many_rows
def test_buyers_of_different_units_do_not_wait(lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two buyers buy at once. Under `row-lock` the second buyer would wait for the first."""
    open_sale(2, lock=lock)
    with Interleaving() as threads:
        monkeypatch.setattr(random, "choice", min)  # A takes the first bucket, B the last one
        a = threads.start("A", prepare_purchase(lock, "A")).run_to("before_commit")
        monkeypatch.setattr(random, "choice", max)
        assert threads.start("B", prepare_purchase(lock, "B")).finish().status == 201
        assert a.finish().status == 201
    assert count_orders_and_stock() == (2, 0)
