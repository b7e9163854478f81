"""A rule of the judge: a condition that every correct sale meets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from loadtest.judge.finding import Case, Finding
from loadtest.judge.sale_record import SaleRecord

#: Yields the cases in which a sale breaks a rule.
FindCases: TypeAlias = Callable[[SaleRecord], Iterator[Case]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the judge.

    name                the name of the rule's findings, listed as a violation in `summary.json`
    find_cases          yields the cases in which a sale breaks the rule
    voids_record        whether a record that breaks the rule is unreliable; see Finding
    needs_node_records  whether the rule applies only to sales whose nodes recorded events
    """

    name: str
    find_cases: FindCases
    voids_record: bool
    needs_node_records: bool

    def find(self, record: SaleRecord) -> Finding | None:
        """Return the finding on a sale that breaks the rule; None if the sale does not break it.

        The finding describes the first case, and has the number of further cases. A rule that needs
        the events of nodes has no finding if the nodes recorded none.
        """
        if self.needs_node_records and not record.nodes_recorded:
            return None
        cases = list(self.find_cases(record))
        if not cases:
            return None
        first = cases[0]
        description = first.description
        if len(cases) > 1:
            description += f" ({len(cases) - 1} more)"
        attempts = first.attempts
        # Several attempts of one case belong together, such as two buyers who held the lock at the
        # same time. In one list with the attempts of other cases this would not be visible.
        if len(attempts) == 1:
            attempts = tuple(attempt for case in cases for attempt in case.attempts)
        return Finding(self.name, description, attempts, first.prevents_exact, self.voids_record)


def rule(
    name: str, *, voids_record: bool = False, needs_node_records: bool = False
) -> Callable[[FindCases], Rule]:
    """Return a decorator that makes a Rule from a function that yields the cases of a violation.

    The function is named after the violation. Its docstring begins with `Rule:` and states the
    condition that a correct sale meets. RULES in verdict.py lists all rules.
    """

    def make_rule(find_cases: FindCases) -> Rule:
        return Rule(name, find_cases, voids_record, needs_node_records)

    return make_rule
