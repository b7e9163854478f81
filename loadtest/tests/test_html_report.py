"""The data of report.html: the tables from which its timelines are drawn.

A timeline has a lane for each buyer, with the buyer's holds of the lock and its commits.
"""

from pathlib import Path
from typing import Any

import pytest

from loadtest.report.html_report import make_report_data, write
from loadtest.report.lanes import CommitState, make_timeline
from loadtest.tests.history_builder import HistoryBuilder, sequential_sale
from loadtest.tests.sample_reports import (
    make_judged_run,
    make_oversold_sale,
    make_summary,
    write_faults,
)
from loadtest.tests.test_story import KEY_PREFIX, make_paused_sale


def make_tables(sale: HistoryBuilder, **run_fields: Any) -> dict[str, Any]:
    """Return the tables of a sale's timeline. make_timeline() describes their rows."""
    tables = make_timeline(sale.build(), make_judged_run(sale, "token", "pause", **run_fields))
    assert tables is not None
    return tables


def test_two_holders_are_marked_in_both_lanes() -> None:
    """In make_paused_sale(), the victim and the rival both have the lock from 1030 to 2571 ms.

    Times in a timeline count from the first request, which is sent at 5 ms. A row has the lane, the
    start and the end of the overlap, and the lane of the other holder.
    """
    victims_lane, rivals_lane = 0, 1
    assert make_tables(make_paused_sale())["overlaps"] == [
        [victims_lane, 1025.0, 2566.0, rivals_lane],
        [rivals_lane, 1025.0, 2566.0, victims_lane],
    ]
    assert make_tables(sequential_sale(KEY_PREFIX))["overlaps"] == []


def test_only_the_stale_write_is_marked() -> None:
    """The rival's order 32 overwrites the stock that the victim's order 31 wrote: a stale write."""
    states_by_order = {
        order: state for *_, order, state in make_tables(make_paused_sale())["commits"]
    }
    assert states_by_order.pop(32) == CommitState.STALE
    assert 31 in states_by_order
    assert set(states_by_order.values()) == {CommitState.SOLD}


def test_outdated_read_without_a_lost_update_is_not_marked() -> None:
    """The rival reads an outdated stock, but its order subtracts a unit from the current stock.

    The final stock shows this: ten units less eleven orders is -1, so no decrement was lost. The
    rival's order is marked as sold, and not as a stale write.
    """
    sale = make_paused_sale()
    sale.final_stock = -1
    states = {state for *_, state in make_tables(sale)["commits"]}
    assert states == {CommitState.SOLD}


def test_commit_without_an_outcome_is_unknown() -> None:
    """The victim reads a stock of 2 at 1 ms, and begins to commit order 31 at 2 ms.

    No event shows whether the commit succeeded.
    """
    sale = HistoryBuilder(stock=2)
    sale.request(0, "victim")
    sale.read(1, "victim", 2)
    sale.record(2, "victim", "before_commit", "invoke", order=31)
    sale.answer(3, "victim", "unknown")
    lane = 0
    expected_row = [lane, 1.0, 2.0, 2, 31, CommitState.UNKNOWN]
    assert make_tables(sale)["commits"] == [expected_row]


@pytest.mark.parametrize("numbers", [["4f2a", 1093, 7], ["1 of 2", None, 3], [None, "a", None]])
def test_orders_with_numbers_of_mixed_types_are_drawn_by_time(
    numbers: list[int | str | None],
) -> None:
    """In a third-party shop, an order number may be a text or an integer, or may be missing.

    The report draws a mark for each order, in the order of the answers. The buyers are answered in
    the reverse order of their requests, so buyer 2's order is first.
    """
    sale = HistoryBuilder(stock=3)
    for buyer, number in enumerate(numbers):
        sale.request(buyer, f"buyer-{buyer}")
        sale.answer(10 - buyer, f"buyer-{buyer}", "sold", number)
    commits = make_tables(sale, target="my_shop.py")["commits"]
    lanes_and_orders = [(lane, order) for lane, *_, order, _ in commits]
    assert lanes_and_orders == [(2, numbers[2]), (1, numbers[1]), (0, numbers[0])]


def test_lanes_are_in_the_order_of_their_first_requests() -> None:
    """Three buyers send four requests: `late` at 5 ms, `first` at 1 and 7 ms, `second` at 3 ms.

    A lane is the row of a buyer in the timeline.
    """
    sale = HistoryBuilder(stock=0)
    for ms, key in ((5, "late"), (1, "first"), (3, "second"), (7, "first")):
        sale.request(ms, key)
        sale.record(ms + 0.2, key, "acquire", "invoke", node="B")
        sale.answer(ms + 0.5, key, "sold_out")
    tables = make_tables(sale)
    # Each row has the buyer and its node.
    assert tables["lanes"] == [["first", "B"], ["second", "B"], ["late", "B"]]
    lanes_of_requests = [lane for lane, *_ in tables["requests"]]
    assert lanes_of_requests == [0, 1, 2, 0]


def test_hold_row_has_wait_fence_and_release_outcome() -> None:
    """Each row of the table `holds` is about one hold: the time in which a buyer has the lock.

    Its columns are the lane; the times at which the buyer began to acquire the lock, got it and
    lost it, in milliseconds since the first request; the fence; and the outcome of the release. The
    lane is the row of the drawing, one for each buyer. In make_paused_sale() the first request is
    sent at 5 ms, so the victim, which gets the lock at 10 ms, has the time 5.0 here. A hold without
    a release ends with the last event of its buyer, here the read at 4 ms.
    """
    victim, rival, *_ = make_tables(make_paused_sale())["holds"]
    assert victim == [0, 1.0, 5.0, 2566.0, 7, "expired"]
    assert rival == [1, 26.0, 1025.0, 2567.0, 8, "released"]
    sale = HistoryBuilder(stock=1)
    sale.request(0, "victim")
    sale.acquire(1, 2, "victim")
    sale.read(4, "victim", 1)
    assert make_tables(sale)["holds"] == [[0, 1.0, 2.0, 4.0, None, "never released"]]


def test_shelf_shows_the_stock_after_each_commit_and_at_the_end() -> None:
    """A row of the table `shelf` has a time, the number of orders until then, and the stock.

    The first row is the start of the sale, and the last row its end. The victim and the rival of
    make_paused_sale() both read a stock of 10, and so both write a stock of 9. Their COMMITs end at
    2561.5 and 2570.5 ms. The times in the table count from the first request, at 5 ms.
    """
    shelf = make_tables(make_paused_sale())["shelf"]
    assert shelf[:3] == [[0.0, 0, 10], [2556.5, 1, 9], [2565.5, 2, 9]]
    *_, orders_at_end, stock_at_end = shelf[-1]
    assert (orders_at_end, stock_at_end) == (11, 0)
    exact_shelf = make_tables(sequential_sale(KEY_PREFIX))["shelf"]
    orders_and_stock = [row[1:] for row in exact_shelf]
    assert orders_and_stock == [[0, 2], [1, 1], [2, 0], [2, 0]]


def test_run_without_events_has_no_timeline() -> None:
    """The summary has the run, but the history of the buyers is empty."""
    run = make_judged_run(sequential_sale("x"), "zookeeper", "rush", attempts="x")
    assert make_report_data(make_summary(run), events=[])["runs"][0]["timeline"] is None


def test_report_without_a_run_is_written(tmp_path: Path) -> None:
    """The summary has no runs and the history no events."""
    page = write(tmp_path, make_summary(), [], title="every fault").read_text()
    assert '"runs":[]' in page


def test_timeline_has_only_the_buyers_of_its_own_run() -> None:
    """Two runs sell the same product, so the report has the events of both.

    A run's field `attempts` is the prefix of its buyers' keys.
    """
    sales = {"a1": make_oversold_sale("a1", buyers=3, stock=2), "b2": sequential_sale("b2")}
    runs = [make_judged_run(sale, "none", "rush", attempts=name) for name, sale in sales.items()]
    events = [event for sale in sales.values() for event in sale.build().events]
    first, second = make_report_data(make_summary(*runs), events)["runs"]
    first_buyers = [buyer for buyer, _ in first["timeline"]["lanes"]]
    second_buyers = [buyer for buyer, _ in second["timeline"]["lanes"]]
    assert first_buyers == ["buyer-0", "buyer-1", "buyer-2"]
    assert second_buyers == ["victim", "rival-1", "rival-2"]


def test_page_has_the_licence_of_its_charts_and_loads_nothing(tmp_path: Path) -> None:
    """The page contains the charting library. Its Content-Security-Policy forbids other sources."""
    page = write_faults(tmp_path).read_text()
    assert "Apache License" in page
    assert "Copyright 2017-2026 The Apache Software Foundation" in page
    assert "default-src 'none'" in page
