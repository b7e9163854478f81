"""The findings of the judge, and the cases that they are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Case:
    """One case in which a sale breaks a rule.

    description     the evidence, one sentence
    attempts        the keys of the buyers whom it concerns
    prevents_exact  whether the sale is not exact because of it
    """

    def __init__(self, description: str, *attempts: str, prevents_exact: bool = True) -> None:
        self.description = description
        self.attempts = attempts
        self.prevents_exact = prevents_exact


def order_case(order: Mapping[str, Any], predicate: str) -> Case:
    """Return a case that concerns one order: "order 31" and a predicate."""
    return Case(f"order {order['order']} {predicate}", str(order["key"]))


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a sale breaks.

    rule            the name of the rule, which `summary.json` lists as a violation
    description     the evidence of the first case, and the number of further cases
    attempts        the keys of the first case; those of all cases if each concerns one buyer
    prevents_exact  whether the sale is not exact because of it, whatever its totals
    voids_record    whether the record is unreliable: then only an oversell is concluded from it
    """

    rule: str
    description: str
    attempts: tuple[str, ...] = ()
    prevents_exact: bool = True
    voids_record: bool = False
