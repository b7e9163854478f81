"""The judgement on a rush."""

from __future__ import annotations

from typing import Any

from loadtest.judge.verdict import Reply
from loadtest.rush.measure import Interval
from loadtest.rush.rush import Rush
from loadtest.stack.client import Shop


class SoldBoth(Shop):
    """A shop that sold its two units to the first two buyers of a rush."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", token="")

    def sale(self, number: int) -> dict[str, Any]:
        return {"initial_stock": 2, "stock_left": 0}

    def orders(self, sale: int) -> list[dict[str, Any]]:
        return [
            {"order": n, "key": f"rush/buyer-{n}", "fence": None, "stock_seen": 2 - n}
            for n in (0, 1)
        ]


def test_a_buyer_without_an_answer_counts_as_unknown() -> None:
    rush = Rush(
        shop=SoldBoth(), lock="none", buyers=3, stock=2, hold_ms=0,
        product="apple", deadline_s=1, id="rush",
    )  # fmt: skip
    rush.leave(Reply("rush/buyer-0", "sold", 0), Interval(0.0, 0.1, 0.1))
    run = rush.result()
    assert (run["verdict"], run["violations"]) == ("exact", [])
    assert (run["outcomes"]["sold"], run["outcomes"]["unknown"]) == (1, 2)
