"""The findings of the judge. A finding summarizes the cases in which a sale breaks a rule."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Case:
    """One case in which a sale breaks a rule.

    description     the evidence, one sentence
    attempts        the keys of the buyers whom the case concerns
    prevents_exact  whether a sale with this case cannot be exact
    """

    def __init__(self, description: str, *attempts: str, prevents_exact: bool = True) -> None:
        self.description = description
        self.attempts = attempts
        self.prevents_exact = prevents_exact


def make_order_case(order: Mapping[str, Any], predicate: str) -> Case:
    """Return a case on one order. Its description is "order 31" followed by `predicate`."""
    return Case(f"order {order['order']} {predicate}", order["key"])


def format_count(count: int, noun: str) -> str:
    """Return a count with a noun that forms its plural with an s: 1 order, 2 orders."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}s"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a sale breaks.

    rule            the name of the rule, which `summary.json` lists as a violation
    description     the evidence of the first case, and the number of further cases
    attempts        keys of the buyers whom the finding concerns. If the first case concerns one
                    buyer, these are the buyers of all cases; otherwise the buyers of the first case
    prevents_exact  whether a sale with this finding cannot be exact, even if its totals are right
    voids_record    whether the finding shows that the record is unreliable; then the verdict can
                    only be `oversold` or `unknown`
    """

    rule: str
    description: str
    attempts: tuple[str, ...]
    prevents_exact: bool
    voids_record: bool
