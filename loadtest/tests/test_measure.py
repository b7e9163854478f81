import pytest

from loadtest.judge.intervals import Request
from loadtest.rush import measure

#: Buyer a is refused and asks again, b and c are answered once, d never is. In nanoseconds.
ASKED = [
    Request("a", 10_000_000, 20_000_000, outcome="full"),
    Request("b", 25_000_000, 200_000_000),
    Request("c", 1_000_000, 30_000_000),
    Request("a", 400_000_000, 500_000_000, outcome="sold"),
    Request("d", 41_000_000),
]


def test_a_purchase_ends_with_its_last_answer_and_a_request_with_its_own() -> None:
    assert measure.figures(ASKED) == {
        "duration_s": 0.499,
        "buy_ms": {"p50": 175.0, "p95": 490.0, "p99": 490.0, "max": 490.0},
        "arrival_spread_ms": 40.0,
        "began_s": 0.001,
        "requests": {"p50": 29.0, "p99": 175.0, "max": 175.0},
        "in_flight": 2,
    }


def test_of_requests_that_end_as_others_begin_one_is_in_flight() -> None:
    assert measure.in_flight([(1, 2), (2, 3)]) == 1
    assert measure.in_flight([(1, 2)] * 3) == 3


@pytest.mark.parametrize(
    ("percent", "value"), [(1, 1.0), (50, 50.0), (95, 95.0), (99.5, 100.0), (100, 100.0)]
)
def test_a_percentile_is_a_value_that_was_measured(percent: float, value: float) -> None:
    assert measure.percentile([float(n) for n in range(1, 101)], percent) == value


def test_nothing_measured_is_zero() -> None:
    found = measure.figures([])
    assert found["duration_s"] == found["began_s"] == found["in_flight"] == 0
    assert found["buy_ms"] == {"p50": 0, "p95": 0, "p99": 0, "max": 0}
