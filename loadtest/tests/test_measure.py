from __future__ import annotations

import pytest

from loadtest.judge.intervals import Request
from loadtest.rush import measure
from loadtest.rush.measure import Interval

THREE = [Interval(1.000, 1.030, 1.030), Interval(1.010, 1.020, 1.500), Interval(1.025, 1.2, 1.2)]


def test_the_spread_is_from_the_first_request_to_the_last() -> None:
    assert measure.spread_ms([one.sent for one in THREE]) == 25.0


def test_in_flight_counts_what_was_sent_and_not_answered() -> None:
    assert measure.in_flight(THREE) == 2
    assert measure.in_flight([Interval(1, 2, 2), Interval(2, 3, 3)]) == 1
    assert measure.in_flight([Interval(1, 2, 2)] * 3) == 3


def test_the_duration_ends_with_the_last_answer() -> None:
    assert measure.duration_s(THREE) == 0.5


def test_latency_is_that_of_the_last_answer() -> None:
    assert measure.latency_ms(THREE) == {"p50": 175.0, "p95": 490.0, "p99": 490.0, "max": 490.0}


@pytest.mark.parametrize(
    ("percent", "value"), [(1, 1.0), (50, 50.0), (95, 95.0), (99.5, 100.0), (100, 100.0)]
)
def test_a_percentile_is_a_value_that_was_measured(percent: float, value: float) -> None:
    assert measure.percentile([float(n) for n in range(1, 101)], percent) == value


def test_nothing_measured_is_zero() -> None:
    assert measure.spread_ms([]) == measure.duration_s([]) == 0
    assert measure.latency_ms([]) == {"p50": 0, "p95": 0, "p99": 0, "max": 0}
    assert measure.began_s([]) == 0


def test_every_single_request_counts_and_so_does_one_that_was_not_answered() -> None:
    first = Request("a", 1_000_000, 3_000_000, outcome="full")
    again = Request("a", 9_000_000, 19_000_000, outcome="sold")
    silent = Request("b", 2_000_000)
    found = measure.requests_ms([first, again, silent])
    assert found == {"asked": 3, "full": 1, "p50": 2.0, "p99": 10.0, "max": 10.0}
