"""The judge where buyers write different rows, so that their purchases overlap, or no row yet."""

from typing import Any

import pytest

from loadtest.tests.recorded import RecordedRush

many_rows = pytest.mark.parametrize("lock", ["buckets", "skip-locked"])


def overlapping(lock: str) -> RecordedRush:
    """The first two buyers are asked at once; the one with the smaller number commits last."""
    rush = RecordedRush(lock)
    for event in rush.happened.events:
        if event["attempt"] == "buyer-0" and event["t"] >= 10e6:
            event["t"] += round(40e6)
        if event["attempt"] == "buyer-1" and event["t"] > 21e6:
            event["t"] -= round(15e6)
        if event["attempt"] == "buyer-1" and event["by"] == "buyer" and event["type"] == "invoke":
            event["t"] = round(1e6)
    return rush


@many_rows
def test_orders_that_overlap_may_commit_in_another_order_than_that_of_their_numbers(
    lock: str,
) -> None:
    judged = overlapping(lock).judged()
    assert (judged.verdict, judged.findings) == ("exact", ())


@many_rows
def test_an_order_that_was_answered_before_another_was_read_for_has_the_smaller_number(
    lock: str,
) -> None:
    """The stock is read for order 31 after order 32 was answered: one of their clocks is wrong."""
    rush = overlapping(lock)
    rush.events("after_read", 0)[0]["t"] = round(45e6)
    judged = rush.judged()
    found = {finding.rule: finding.what for finding in judged.findings}
    assert judged.verdict == "unknown"
    assert found["commit_order"] == (
        "order 32 was answered 21.0 ms before the stock was read for order 31"
    )


@many_rows
def test_a_lost_update_is_found_and_no_order_is_blamed_for_what_it_saw(lock: str) -> None:
    """The sum over many rows that a buyer read is not what it wrote back."""
    judged = overlapping(lock).judged(left=1)
    assert judged.violations == ("lost_update",)
    assert judged.verdict == "unknown"


# --- promises: an order has its number before anybody writes it ----------------------------------


def numbered_backwards(lock: str) -> RecordedRush:
    """The first buyer's order has the higher number of the first two."""
    rush = RecordedRush(lock)
    other = {31: 32, 32: 31}
    numbered: list[Any] = [*rush.happened.events, *rush.happened.orders]
    for one in numbered:
        if one.get("order") in other:
            one["order"] = other[one["order"]]
    return rush


@pytest.mark.parametrize(("lock", "found"), [("reserve", ()), ("conditional", ("commit_order",))])
def test_the_order_of_the_numbers_counts_where_each_order_is_written_before_the_next(
    lock: str, found: tuple[str, ...]
) -> None:
    assert numbered_backwards(lock).judged().violations == found


def test_a_promise_that_is_named_again_was_made_once() -> None:
    rush = numbered_backwards("reserve")
    rush.answer(0, "unknown")
    rush.asks_again(0)
    rush.at(0, 204, "reserve", "invoke")
    rush.at(0, 206, "reserved", order=32, amount=4, sale=7)
    assert (rush.judged().verdict, rush.judged().findings) == ("exact", ())
