"""What became of the units of a sale when it was closed."""

from typing import Any, cast

import pytest

from loadtest.commands.rushes import judge_closed
from loadtest.stack.client import Shop


class Closed:
    """A shop that closed its sales with so many units."""

    def __init__(self, **left: int) -> None:
        self.left = left

    def sale(self, number: int) -> dict[str, Any]:
        name = f"sale_{number}"
        return {"open": name not in self.left, "stock_left": self.left.get(name, 0)}


def run(**more: Any) -> dict[str, Any]:
    known = {"lock": "buckets", "verdict": "exact", "violations": [], "as_expected": True}
    return {**known, **more}


@pytest.mark.parametrize(
    "shape", [{"sale": 7, "stock_left": 40}, {"products": [{"sale": 7, "left": 40}]}]
)
def test_units_that_vanish_when_a_sale_is_closed_leave_no_exact_verdict(shape: Any) -> None:
    right, wrong = run(**shape), run(**shape)
    judge_closed(cast(Shop, Closed(sale_7=40)), [right])
    judge_closed(cast(Shop, Closed(sale_7=10)), [wrong])
    assert right == run(**shape)
    assert (wrong["verdict"], wrong["violations"]) == ("unknown", ["lost_at_close"])
    assert wrong["why"] == "sale 7 had 40 units left, and was closed with 10"
    assert not wrong["as_expected"]


def test_a_sale_that_is_open_and_a_run_without_one_are_left_alone() -> None:
    still, none = run(sale=7, stock_left=40), run(verdict="not_run")
    judge_closed(cast(Shop, Closed()), [still, none])
    assert still["verdict"] == "exact"
    assert none["verdict"] == "not_run"
