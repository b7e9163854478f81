"""What a strategy is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shop.purchase import Attempt, Receipt


def verdicts(**faults: str) -> dict[str, str]:
    """Fault -> verdict, from the faults of each verdict: verdicts(exact="rush crash")."""
    return {fault: verdict for verdict, names in faults.items() for fault in names.split()}


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to guard the check-and-decrement.

    name      the value of `lock` in POST /buy
    title     a few words for a table or a drop-down
    article   where it comes from (A0 to A4), or `beyond`
    summary   one sentence: what it does, and what breaks it
    buy       sells one unit to one buyer, or raises a ShopError
    expected  fault -> the verdict that the judge must come to
    needs     a setting without which it answers `unavailable`; empty if it needs none
    """

    name: str
    title: str
    article: str
    summary: str
    buy: Callable[[Attempt], Receipt]
    expected: Mapping[str, str]
    needs: str = ""

    @property
    def file(self) -> str:
        """Where it stands, from the project's folder."""
        return f"shop/strategies/{self.name.replace('-', '_')}.py"
