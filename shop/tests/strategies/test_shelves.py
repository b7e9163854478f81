"""Where the units of a sale lie: each in one place, and counted wherever it is."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from shop.errors import BadInput
from shop.sale import opening, reports, shelves
from shop.tests.till import APPLE, books, buy, committed, get, open_sale, places

pytestmark = committed

many_rows = pytest.mark.parametrize("lock", ["buckets", "skip-locked"])


def lies_where(lock: str, units: int) -> tuple[int, int, int]:
    return (0, units, 0) if lock == "buckets" else (0, 0, units)


# --- opened for a strategy ----------------------------------------------------------------------


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


def test_more_rows_than_a_restock_can_write_are_refused_and_the_open_sale_goes_on() -> None:
    sale = open_sale(1)
    with pytest.raises(BadInput, match="too many rows of single units"):
        open_sale(shelves.MOST_UNITS + 1, lock="skip-locked")
    assert (places(sale), buy(lock="row-lock").status) == ((1, 0, 0), 201)


# --- counted wherever they are ------------------------------------------------------------------


@many_rows
def test_the_stock_left_is_the_same_in_every_report_and_after_the_close(
    lock: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sale = open_sale(20, lock=lock)
    assert [buy(lock=lock, buyer=f"b{number}").status for number in range(3)] == [201] * 3
    seen = reports.sale_report(sale.pk).as_dict()
    assert (seen["orders"], seen["stock_left"], seen["lost_updates"]) == (3, 17, 0)
    assert get(f"/sales/{sale.pk}").body["stock_left"] == 17
    assert reports.recent_reports(APPLE)[0]["stock_left"] == 17
    call_command("sale_report", "--json")
    assert json.loads(capsys.readouterr().out)["stock_left"] == 17
    opening.close(product=APPLE)
    sale.refresh_from_db()
    assert (sale.final_stock, places(sale)) == (17, (17, 0, 0))


@many_rows
def test_a_strategy_of_another_place_sells_none_of_it(lock: str) -> None:
    """A sale has one strategy. Another one finds nothing to sell: undersold, no more."""
    open_sale(3)
    refused = buy(lock=lock)
    assert (refused.status, books()) == (409, (0, 3))
    assert "Open one with POST /restock that names this one" in refused.body["error"]
    first = open_sale(3, lock=lock)
    assert buy(lock=lock).status == 201
    for other in ("row-lock", "conditional", "redis"):
        assert buy(lock=other, buyer="bob").status == 409
    assert books() == (1, 2)
    assert buy(lock=lock, buyer="eve").status == 201
    assert reports.sale_report(first.pk).lost_updates == 0
