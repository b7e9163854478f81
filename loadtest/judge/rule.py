"""A rule of the judge: a condition that every correct sale meets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from loadtest.judge.finding import Case, Finding
from loadtest.judge.sale_record import Record

#: Yields the cases in which a sale breaks a rule.
FindCases: TypeAlias = Callable[[Record], Iterator[Case]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the judge.

    name        the name of its findings, which `summary.json` lists as a violation
    find_cases  yields the cases in which a sale breaks it
    voids       whether a record that breaks it is unreliable, as in Finding
    recorded    whether it applies only to a sale whose nodes recorded their events
    """

    name: str
    find_cases: FindCases
    voids: bool
    recorded: bool

    def find(self, record: Record) -> Finding | None:
        """Return the first case and the number of the others; None if there is no case."""
        if self.recorded and not record.recorded:
            return None
        cases = list(self.find_cases(record))
        if not cases:
            return None
        first = cases[0]
        keys = first.keys
        if len(keys) == 1:
            keys = tuple(key for case in cases for key in case.keys)
        rest = f" ({len(cases) - 1} more)" if len(cases) > 1 else ""
        return Finding(self.name, first.what + rest, keys, first.spoils, self.voids)


def rule(name: str, *, voids: bool = False, recorded: bool = False) -> Callable[[FindCases], Rule]:
    """Make a rule of the function that yields its cases. RULES in verdict.py lists all rules."""

    def make_rule(find_cases: FindCases) -> Rule:
        return Rule(name, find_cases, voids, recorded)

    return make_rule
