"""What the judge concludes where buyers write different rows: their purchases overlap."""

from __future__ import annotations

import pytest

from loadtest.judge.verdict import Judgement
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


def answered_before_another_reads(lock: str) -> RecordedRush:
    """The stock is read for order 31 after order 32 was answered: one of their clocks is wrong."""
    rush = overlapping(lock)
    [read] = rush.events("after_read", 0)
    read["t"] = round(45e6)
    return rush


def of_commits(judged: Judgement) -> list[str]:
    return [finding.what for finding in judged.findings if finding.rule == "commit_order"]


@many_rows
def test_orders_that_overlap_may_commit_in_another_order_than_that_of_their_numbers(
    lock: str,
) -> None:
    judged = overlapping(lock).judged()
    assert (judged.verdict, judged.findings) == ("exact", ())


def test_under_one_row_they_may_not() -> None:
    judged = overlapping("conditional").judged()
    assert judged.verdict == "unknown"
    [what] = of_commits(judged)
    assert "was about to be committed" in what


@many_rows
def test_an_order_that_was_answered_before_another_was_read_for_has_the_smaller_number(
    lock: str,
) -> None:
    judged = answered_before_another_reads(lock).judged()
    assert judged.verdict == "unknown"
    [what] = of_commits(judged)
    assert what == "order 32 was answered 21.0 ms before the stock was read for order 31"


@many_rows
def test_a_lost_update_is_found_and_no_order_is_blamed_for_what_it_saw(lock: str) -> None:
    """The sum over many rows that a buyer read is not what it wrote back."""
    judged = overlapping(lock).judged(left=1)
    assert judged.violations == ("lost_update",)
    assert judged.verdict == "unknown"
