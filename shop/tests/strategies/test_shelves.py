"""Where the units of a sale lie: each in one place, moved once, and counted wherever it is."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from shop.errors import Busy, SoldOut
from shop.models import Product, Sale
from shop.sale import opening, reports, shelves
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt, Stock
from shop.tests.database import ReplyCutter, database_at
from shop.tests.till import APPLE, books, buy, committed, get, open_sale, places

pytestmark = committed

MANY_ROWS = {"buckets": shelves.fill_buckets, "skip-locked": shelves.fill_units}
many_rows = pytest.mark.parametrize("lock", MANY_ROWS)


def row_of(sale: Sale) -> Stock:
    """What a buyer reads of the product before it looks for a unit."""
    return Stock(sale.product_id, sale.pk, Product.objects.get(pk=sale.product_id).amount)


def lies_where(lock: str, units: int) -> tuple[int, int, int]:
    return (0, units, 0) if lock == "buckets" else (0, 0, units)


def rush(lock: str, buyers: int) -> list[str]:
    """Buyers at once, each on a connection of its own. Returns the outcome of each."""
    start = threading.Barrier(buyers)

    def one(number: int) -> str:
        attempt = Attempt(APPLE, f"b{number}", lock, key=f"{lock}-{number}")
        start.wait(10)
        try:
            while True:
                try:
                    check_out(attempt)
                except Busy:
                    continue
                except SoldOut:
                    return "sold_out"
                return "sold"
        finally:
            connection.close()

    with ThreadPoolExecutor(buyers) as pool:
        return list(pool.map(one, range(buyers)))


# --- a rush -------------------------------------------------------------------------------------


@many_rows
@pytest.mark.parametrize("units", [7, 40])
def test_a_rush_on_a_sale_that_nobody_filled_sells_exactly_what_there_is(
    lock: str, units: int
) -> None:
    """All find nothing and want to move the units: one does, and nobody is refused for that."""
    sale = open_sale(units)
    outcomes = rush(lock, 24)
    sold = min(units, 24)
    assert (outcomes.count("sold"), outcomes.count("sold_out")) == (sold, 24 - sold)
    assert (books(), places(sale)) == ((sold, units - sold), lies_where(lock, units - sold))


# --- moved once ---------------------------------------------------------------------------------


@many_rows
def test_units_are_not_moved_twice_nor_those_of_a_sale_that_is_over(lock: str) -> None:
    fill = MANY_ROWS[lock]
    sale = open_sale(20)
    before = row_of(sale)
    fill(before)
    fill(before)
    assert places(sale) == lies_where(lock, 20)
    new = open_sale(5)
    fill(before)
    assert (places(sale)[1:], places(new)) == ((0, 0), (5, 0, 0))


@many_rows
def test_a_move_whose_commit_got_no_reply_has_sold_nothing_and_lost_no_unit(lock: str) -> None:
    sale = open_sale(20)
    with ReplyCutter() as proxy, database_at(proxy.folder):
        answer = buy(lock=lock, key="k1")
    assert proxy.cut == 1, "the fault did not fire"
    assert (answer.status, answer.body["outcome"]) == (503, "unavailable")
    assert (books(), places(sale)) == ((0, 20), lies_where(lock, 20))
    assert buy(lock=lock, key="k1").status == 201


def test_more_units_than_are_moved_at_once_follow_when_these_are_sold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shelves, "MOST_UNITS", 3)
    sale = open_sale(8, lock="skip-locked")
    assert places(sale) == (5, 0, 3)
    answers = [buy(lock="skip-locked", buyer=f"b{number}") for number in range(9)]
    assert [answer.body.get("stock_seen") for answer in answers] == [*range(8, 0, -1), None]
    assert answers[-1].body["outcome"] == "sold_out"
    assert (books(), places(sale)) == ((8, 0), (0, 0, 0))


@many_rows
def test_a_server_with_its_own_strategy_moves_them_when_the_sale_is_opened(
    lock: str, settings: Settings
) -> None:
    settings.SHOP_DEMO = False
    settings.SHOP_LOCK = lock
    assert places(open_sale(20)) == lies_where(lock, 20)
    settings.SHOP_LOCK = "row-lock"
    assert places(open_sale(20)) == (20, 0, 0)


@many_rows
def test_a_restock_of_20_000_units_takes_one_insert(lock: str) -> None:
    open_sale(1)
    with CaptureQueriesContext(connection) as asked:
        sale = open_sale(20_000, lock=lock)
    inserts = [query for query in asked if query["sql"].startswith("INSERT INTO")]
    assert len(inserts) == 2, "the sale, and where its units lie"
    assert len(asked) < 20
    assert places(sale) == lies_where(lock, 20_000)


# --- counted wherever they are ------------------------------------------------------------------


@many_rows
def test_the_stock_left_is_the_same_in_every_report_and_after_the_close(
    lock: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sale = open_sale(20)
    assert [buy(lock=lock, buyer=f"b{number}").status for number in range(3)] == [201] * 3
    seen = reports.sale_report(sale.pk).as_dict()
    assert (seen["orders"], seen["stock_left"], seen["lost_updates"]) == (3, 17, 0)
    assert get(f"/sales/{sale.pk}").body["stock_left"] == 17
    assert reports.recent_reports(APPLE)[0]["stock_left"] == 17
    product: Any = reports.counted_products().get(name=APPLE)
    assert product.stock_left == 17
    call_command("sale_report", "--json")
    assert json.loads(capsys.readouterr().out)["stock_left"] == 17
    opening.close(product=APPLE)
    sale.refresh_from_db()
    assert (sale.final_stock, places(sale)) == (17, (17, 0, 0))


@many_rows
def test_a_strategy_of_another_place_sells_none_of_it(lock: str) -> None:
    """A sale has one strategy. A second one finds the product's row empty: undersold, no more."""
    first = open_sale(3)
    assert buy(lock=lock).status == 201
    for other in ("row-lock", "conditional", "redis"):
        assert buy(lock=other, buyer="bob").status == 409
    assert books() == (1, 2)
    assert buy(lock=lock, buyer="eve").status == 201
    assert reports.sale_report(first.pk).lost_updates == 0


def test_no_report_joins_the_orders_to_the_units() -> None:
    """Joined, 20,000 rows were counted once for each order: a report took longer than 8 s."""
    sale = open_sale(3, lock="skip-locked")
    with CaptureQueriesContext(connection) as asked:
        reports.sale_report(sale.pk)
        reports.recent_reports(APPLE)
    assert len(asked) == 2
    assert not [query for query in asked if 'JOIN "purchase_history"' in query["sql"]]
