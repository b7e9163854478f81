"""The judge: what a sale came to, from its orders and from what its buyers were told.

Pure functions; nothing here talks to a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

OUTCOMES = (
    "sold",
    "sold_out",
    "busy",
    "lost",
    "unavailable",
    "throttled",
    "error",
    "unknown",
)
#: A buyer who is told one of these asks again with the same key.
ASK_AGAIN = frozenset({"busy", "lost", "unavailable", "unknown"})

#: Exit code of a Locust run, by verdict.
EXIT_CODES = {"exact": 0, "oversold": 3, "undersold": 4, "deadlock": 5, "unknown": 6, "not_run": 7}


@dataclass(frozen=True, slots=True)
class Told:
    """What one buyer was told last.

    key      the buyer's Idempotency-Key
    outcome  one of OUTCOMES
    order    the order's number, when sold
    """

    key: str
    outcome: str
    order: int | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict (design section 4), the numbers it follows from, and what else was found."""

    verdict: str
    orders: int
    stock_left: int
    oversold: int
    undersold: int
    lost_updates: int
    outcomes: Mapping[str, int]
    violations: Sequence[str] = field(default_factory=tuple)


def judge(
    *,
    initial_stock: int,
    stock_left: int,
    orders: Sequence[Mapping[str, Any]],
    told: Sequence[Told],
) -> Judgement:
    """Judge one sale that was drained, or given up at its deadline.

    initial_stock  units that the sale opened with
    stock_left     units that the shop still shows
    orders         the sale's orders as GET /sales/<id>/orders gives them
    told           one entry per buyer
    """
    count = Counter(dict.fromkeys(OUTCOMES, 0))
    count.update(buyer.outcome for buyer in told)
    sold = len(orders)
    lost_updates = sold - (initial_stock - stock_left)
    oversold = max(0, sold - initial_stock)
    undersold = max(0, min(initial_stock, len(told)) - sold)
    violations = _violations(initial_stock, lost_updates, orders, told)
    return Judgement(
        verdict=_verdict(initial_stock, sold, oversold, undersold, violations, told),
        orders=sold,
        stock_left=stock_left,
        oversold=oversold,
        undersold=undersold,
        lost_updates=lost_updates,
        outcomes=dict(count),
        violations=violations,
    )


def _verdict(
    initial_stock: int,
    sold: int,
    oversold: int,
    undersold: int,
    violations: Sequence[str],
    told: Sequence[Told],
) -> str:
    if oversold:
        return "oversold"
    drained = all(buyer.outcome in {"sold", "sold_out"} for buyer in told)
    if not drained or not told or (sold == 0 and initial_stock > 0):
        return "unknown"
    if undersold:
        return "undersold"
    # Fewer buyers than the stock cannot show an oversell; a wrong record is still no exact sale.
    return "unknown" if violations else "exact"


def _violations(
    initial_stock: int,
    lost_updates: int,
    orders: Sequence[Mapping[str, Any]],
    told: Sequence[Told],
) -> tuple[str, ...]:
    """What no correct sale shows, whatever its totals."""
    found = []
    if lost_updates:
        found.append("lost_update")
    recorded = {order["key"]: order["order"] for order in orders}
    acknowledged = [buyer for buyer in told if buyer.outcome == "sold"]
    if any(recorded.get(buyer.key) != buyer.order for buyer in acknowledged):
        found.append("lost_ack")
    refused = [buyer for buyer in told if buyer.outcome == "sold_out"]
    if refused and (len(orders) < initial_stock or any(b.key in recorded for b in refused)):
        found.append("false_sold_out")
    fences = [order["fence"] for order in orders if order["fence"] is not None]
    if any(later <= earlier for earlier, later in pairwise(fences)):
        found.append("fence_fell")
    return tuple(found)
