"""What a strategy is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shop.purchase import Attempt, Receipt

#: The rush, alone in one process too, and what is done to a shop on purpose (loadtest/faults/).
#: A name with an @ is the same fault in another form.
FAULTS = frozenset(
    {
        *("rush", "rush-one-process"),
        *("crash", "slow", "late-release", "pause", "pause@acquired", "clock"),
        *("restart", "failover", "failover@sentinel", "quorum", "lost-reply", "unknown-commit"),
        *("busy", "redis-down", "stall", "eviction", "db-kill", "shutdown", "shutdown@short"),
    }
)


def verdicts(**faults: str) -> dict[str, str]:
    """Fault -> verdict, from the faults of each verdict: verdicts(exact="rush crash").

    Raises ValueError for a fault that does not exist, or is given two verdicts.
    """
    pairs = [(fault, verdict) for verdict, names in faults.items() for fault in names.split()]
    expected = dict(pairs)
    if len(expected) < len(pairs) or not set(expected) <= FAULTS:
        raise ValueError(f"a fault that is unknown or named twice: {pairs}; see FAULTS")
    return expected


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to guard the check-and-decrement.

    name      the value of `lock` in POST /buy
    title     a few words for a table or a drop-down
    article   where it comes from (A0 to A4), or `beyond`
    summary   one sentence: what it does, and what breaks it
    buy       sells one unit to one buyer, or raises a ShopError
    expected  fault -> the verdict that the judge must come to
    sound     whether no known fault makes it oversell or stops it for good: a shop that is no demo
              may sell under it
    stops     fault -> the point at which its victim is to stand, where that is not the fault's own
    needs     a setting without which it answers `unavailable`; empty if it needs none
    """

    name: str
    title: str
    article: str
    summary: str
    buy: Callable[[Attempt], Receipt]
    expected: Mapping[str, str]
    sound: bool = False
    stops: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""

    @property
    def file(self) -> str:
        """Where it stands, from the project's folder."""
        return f"shop/strategies/{self.name.replace('-', '_')}.py"
