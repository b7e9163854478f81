"""A rule of the judge, and what it finds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from loadtest.judge.sale_record import Record


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation: what no correct sale shows."""

    rule: str  # its name, one of those that `summary.json` lists as violations
    what: str  # the evidence, one sentence
    attempts: tuple[str, ...] = ()  # keys of the first case; of all, where each concerns one buyer
    spoils: bool = True  # a sale with it is not exact, whatever its totals
    voids: bool = False  # the record is not to be believed: only an oversell is concluded from it


class Case:
    """One case of a violation: the evidence, and the keys of those whom it concerns."""

    def __init__(self, what: str, *keys: str, spoils: bool = True) -> None:
        self.what = what
        self.keys = keys
        self.spoils = spoils


def of_order(order: Mapping[str, Any], what: str) -> Case:
    """A case that concerns one order: `what` says what of it."""
    return Case(f"order {order['order']} {what}", str(order["key"]))


@dataclass
class rule:
    """A rule of the judge: a function that yields its cases in a record, with this decorator."""

    name: str  # what its findings are called
    voids: bool = False  # as in Finding
    recorded: bool = False  # it concerns only a run whose nodes recorded
    needs: str = ""  # the field of Evidence that makes it concern a strategy; empty: it does all

    def __call__(self, cases: Callable[[Record], Iterator[Case]]) -> Self:
        self.cases = cases
        return self

    def find(self, record: Record) -> Finding | None:
        """The finding names the first case, and counts the others."""
        if self.recorded and not record.recorded:
            return None
        if self.needs and not getattr(record.evidence, self.needs):
            return None
        cases = list(self.cases(record))
        if not cases:
            return None
        first, keys = cases[0], cases[0].keys
        if len(keys) == 1:
            keys = tuple(key for case in cases for key in case.keys)
        more = f" ({len(cases) - 1} more)" if len(cases) > 1 else ""
        return Finding(self.name, first.what + more, keys, first.spoils, self.voids)
