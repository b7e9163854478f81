"""The data of report.html: the lanes, holds, commits, marks and stock of its timelines."""

from pathlib import Path
from typing import Any

import pytest

from loadtest.report.html_report import make_report_data, write
from loadtest.report.lanes import CommitState, make_timeline
from loadtest.tests.history_builder import HistoryBuilder, sequential_sale
from loadtest.tests.sample_reports import (
    make_crowded_sale,
    make_judged_run,
    make_summary,
    write_faults,
)
from loadtest.tests.test_story import KEY_PREFIX, make_paused_sale


def make_tables(sale: HistoryBuilder, **run_fields: Any) -> dict[str, Any]:
    """Return the tables of a sale's timeline, as make_timeline() describes them."""
    tables = make_timeline(sale.build(), make_judged_run(sale, "token", "pause", **run_fields))
    assert tables is not None
    return tables


def test_two_holders_are_marked_in_both_lanes() -> None:
    """The victim, in lane 0, and the rival, in lane 1, both have the lock from 1025 to 2566 ms.

    A row has the lane, the start and the end of the overlap, and the lane of the other holder.
    """
    assert make_tables(make_paused_sale())["overlaps"] == [
        [0, 1025.0, 2566.0, 1],
        [1, 1025.0, 2566.0, 0],
    ]
    assert make_tables(sequential_sale(KEY_PREFIX))["overlaps"] == []


def test_only_the_stale_write_is_marked() -> None:
    """The rival's order 32 erases the decrement of the victim's order 31."""
    states_by_order = {
        order: state for *_, order, state in make_tables(make_paused_sale())["commits"]
    }
    assert states_by_order.pop(32) == CommitState.STALE
    assert 31 in states_by_order
    assert set(states_by_order.values()) == {CommitState.SOLD}


def test_outdated_read_is_not_marked_if_it_lost_no_update() -> None:
    """The rival read an outdated stock, but subtracted its unit from the current one.

    So its order is marked as sold, and not as a stale write: with eleven orders for ten units, a
    final stock of -1 means that no decrement was lost.
    """
    sale = make_paused_sale()
    sale.final_stock = -1
    states = {state for *_, state in make_tables(sale)["commits"]}
    assert states == {CommitState.SOLD}


def test_commit_without_an_outcome_is_unknown() -> None:
    """The victim, in lane 0, read a stock of 2 at 1 ms, and began to commit order 31 at 2 ms."""
    sale = HistoryBuilder(stock=2)
    sale.ask(0, "victim")
    sale.read(1, "victim", 2)
    sale.record(2, "victim", "before_commit", "invoke", order=31)
    sale.answer(3, "victim", "unknown")
    assert make_tables(sale)["commits"] == [[0, 1.0, 2.0, 2, 31, CommitState.UNKNOWN]]


@pytest.mark.parametrize("numbers", [["4f2a", 1093, 7], ["1 of 2", None, 3], [None, "a", None]])
def test_orders_with_numbers_of_mixed_types_are_drawn_by_time(
    numbers: list[int | str | None],
) -> None:
    """In another shop, the number of an order may be a text or an integer, or may be missing.

    The buyers are answered in the reverse order of their requests, so buyer 2's order is first.
    """
    sale = HistoryBuilder(stock=3)
    for buyer, number in enumerate(numbers):
        sale.ask(buyer, f"buyer-{buyer}")
        sale.answer(10 - buyer, f"buyer-{buyer}", "sold", number)
    commits = make_tables(sale, target="my_shop.py")["commits"]
    lanes_and_orders = [(lane, order) for lane, *_, order, _ in commits]
    assert lanes_and_orders == [(2, numbers[2]), (1, numbers[1]), (0, numbers[0])]


def test_lanes_are_in_the_order_of_their_first_requests() -> None:
    sale = HistoryBuilder(stock=0)
    for ms, key in ((5, "late"), (1, "first"), (3, "second"), (7, "first")):
        sale.ask(ms, key)
        sale.record(ms + 0.2, key, "acquire", "invoke", node="B")
        sale.answer(ms + 0.5, key, "sold_out")
    tables = make_tables(sale)
    assert tables["lanes"] == [["first", "B"], ["second", "B"], ["late", "B"]]  # buyer, node
    assert [lane for lane, *_ in tables["requests"]] == [0, 1, 2, 0]


def test_hold_row_has_wait_fence_and_release_outcome() -> None:
    """A row of `holds` is a hold of the lock, with its times in milliseconds.

    Its columns are the lane; the times at which the buyer asked for the lock, got it and lost it;
    the fence; and the outcome of the release. A hold without a release ends with the last event of
    its buyer, here the read at 4 ms.
    """
    victim, rival, *_ = make_tables(make_paused_sale())["holds"]
    assert victim == [0, 1.0, 5.0, 2566.0, 7, "expired"]
    assert rival == [1, 26.0, 1025.0, 2567.0, 8, "released"]
    sale = HistoryBuilder(stock=1)
    sale.ask(0, "victim")
    sale.acquire(1, 2, "victim")
    sale.read(4, "victim", 1)
    assert make_tables(sale)["holds"] == [[0, 1.0, 2.0, 4.0, None, "never released"]]


def test_shelf_shows_the_stock_after_each_commit_and_at_the_end() -> None:
    """A row of `shelf` has a time in milliseconds, how many orders there were, and the stock.

    The last row is the end of the sale.
    """
    shelf = make_tables(make_paused_sale())["shelf"]
    assert shelf[:3] == [[0.0, 0, 10], [2556.5, 1, 9], [2565.5, 2, 9]]
    *_, orders_at_end, stock_at_end = shelf[-1]
    assert (orders_at_end, stock_at_end) == (11, 0)
    exact_shelf = make_tables(sequential_sale(KEY_PREFIX))["shelf"]
    assert [row[1:] for row in exact_shelf] == [[0, 2], [1, 1], [2, 0], [2, 0]]


def test_run_without_events_has_no_timeline() -> None:
    run = make_judged_run(sequential_sale("x"), "zookeeper", "rush", attempts="another-rush")
    assert make_report_data(make_summary(run), [])["runs"][0]["timeline"] is None


def test_report_may_have_no_run(tmp_path: Path) -> None:
    page = write(tmp_path, make_summary(), [], title="every fault").read_text()
    assert '"runs":[]' in page


def test_rushes_for_the_same_product_are_kept_apart() -> None:
    """A run's field `attempts` is the prefix of its buyers' keys.

    The timeline of a run has one lane for each of these buyers.
    """
    sales = {"a1": make_crowded_sale("a1", buyers=3, stock=2), "b2": sequential_sale("b2")}
    runs = [make_judged_run(sale, "none", "rush", attempts=name) for name, sale in sales.items()]
    events = [event for sale in sales.values() for event in sale.build().events]
    first, second = make_report_data(make_summary(*runs), events)["runs"]
    assert [lane[0] for lane in first["timeline"]["lanes"]] == ["buyer-0", "buyer-1", "buyer-2"]
    assert [lane[0] for lane in second["timeline"]["lanes"]] == ["victim", "rival-1", "rival-2"]


def test_page_has_the_licence_of_its_charts_and_may_load_nothing(tmp_path: Path) -> None:
    """The page contains the charting library, and its policy forbids every other source."""
    page = write_faults(tmp_path).read_text()
    assert "Apache License" in page
    assert "Copyright 2017-2026 The Apache Software Foundation" in page
    assert "default-src 'none'" in page
