"""The findings of the judge, and the cases that they are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Case:
    """One case in which a sale breaks a rule.

    what      the evidence, one sentence
    keys      the keys of the buyers whom it concerns
    spoils    whether the sale is not exact because of it
    """

    def __init__(self, what: str, *keys: str, spoils: bool = True) -> None:
        self.what = what
        self.keys = keys
        self.spoils = spoils


def of_order(order: Mapping[str, Any], what: str) -> Case:
    """Return a case that concerns one order; `what` is its predicate."""
    return Case(f"order {order['order']} {what}", str(order["key"]))


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a sale breaks.

    rule      the name of the rule, which `summary.json` lists as a violation
    what      the evidence of the first case, and the number of the others
    attempts  the keys of the first case; those of all cases if each concerns one buyer
    spoils    whether the sale is not exact because of it, whatever its totals
    voids     whether the record is unreliable: then only an oversell is concluded from it
    """

    rule: str
    what: str
    attempts: tuple[str, ...] = ()
    spoils: bool = True
    voids: bool = False
