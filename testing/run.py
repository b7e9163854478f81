"""The record of one interleaving, and the exceptions of `interleave`.

AssertionError
├── InterleavingFailed
└── Stuck
ValueError
└── NothingToInterleave
UserWarning
└── NotAllTried
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a run.

    Attributes:
        actor: The call: `A`, `B`, and so on, in the order of the arguments of `interleave`.
        text: The statement that was sent, or the function that was called; for `returns` and
            `raises` the value or the exception.
        kind: `step`, `waits` (for another call), `returns` or `raises`.
    """

    actor: str
    text: str
    kind: str = "step"


@dataclass(slots=True)
class Run:
    """The outcome of the calls in one order of their turns.

    Attributes:
        schedule: The turns that were taken, such as `AABB`.
        steps: The events, in order.
        results: The return value of each call, in the order of the calls; None if it raised.
        errors: The exception of each call, in the order of the calls; None if it returned.
        trace: The turns that moved any call. `A`: call A made a step in its turn. `a`: call A was
            blocked or had ended, so it made no step in its turn, but a blocked call continued.
        turns: Maps the trace before each turn, and the name of the call, to the trace after the
            turn. Both traces are the same if no call moved.
    """

    schedule: str = ""
    steps: list[Step] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    errors: list[BaseException | None] = field(default_factory=list)
    trace: str = ""
    turns: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def is_serial(self) -> bool:
        """True if each call ended before the next one began."""
        return count_switches(self.schedule) == len(set(self.schedule)) - 1


def count_switches(schedule: str) -> int:
    """Return the number of times that the turn passes from one call to another.

    Args:
        schedule: The turns, such as `AABB`.
    """
    return sum(first != second for first, second in pairwise(schedule))


class InterleavingFailed(AssertionError):
    """The check failed, or a call raised, in at least one order; the message shows its timeline."""


class NothingToInterleave(ValueError):
    """A call reached no step: it sent no statement and called none of the functions in `at`."""


class Stuck(AssertionError):
    """No call moved for `timeout` seconds; the message shows the timeline so far."""


class NotAllTried(UserWarning):
    """Some orders were not tried, because of `limit` or `within`; they may hide a race."""
