"""One interleaving as it happened: who did what, in which order, and how each call ended."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened.

    actor   A, B, ...: which call, in the order in which they were given
    text    the statement that was sent, the function that was called, or what else happened
    kind    "step", "waits" (for the other one), "returns" or "raises"
    """

    actor: str
    text: str
    kind: str = "step"


@dataclass(slots=True)
class Run:
    """The outcome of one schedule.

    schedule  whose turn it was: `AABB`
    steps     what happened, in order
    results   what each call returned, in the order of the calls; None where it raised
    errors    what each call raised, in the order of the calls; None where it returned
    trace     the turns with those in small letters that were passed over and woke somebody
    passed    which turns were passed over, by the trace before them, and changed nothing
    """

    schedule: str
    steps: list[Step] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    errors: list[BaseException | None] = field(default_factory=list)
    trace: str = ""
    passed: set[tuple[str, str]] = field(default_factory=set)

    @property
    def is_serial(self) -> bool:
        """Whether one call ended before the next one began."""
        return switches(self.schedule) == len(set(self.schedule)) - 1


def switches(schedule: str) -> int:
    """How often the turn passes from one to another."""
    return sum(one != two for one, two in pairwise(schedule))
