"""One interleaving as it happened: who did what, in which order, and how each call ended; and what
`interleave` raises."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened."""

    actor: str  # A, B, ...: which call, in the order in which they were given
    text: str  # the statement that was sent, the function that was called, or what else happened
    kind: str = "step"  # "step", "waits" (for the other one), "returns" or "raises"


@dataclass(slots=True)
class Run:
    """The outcome of one schedule. `results` and `errors` are in the order of the calls."""

    schedule: str = ""  # whose turn it was: `AABB`
    steps: list[Step] = field(default_factory=list)  # what happened, in order
    results: list[Any] = field(default_factory=list)  # what was returned; None where it raised
    errors: list[BaseException | None] = field(default_factory=list)  # None where it returned
    trace: str = ""  # the turns, in small letters those that were passed over and woke somebody
    #: The trace before a turn, and whose it was: the trace after it, the same where nothing moved.
    turns: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def is_serial(self) -> bool:
        """Whether one call ended before the next one began."""
        return switches(self.schedule) == len(set(self.schedule)) - 1


def switches(schedule: str) -> int:
    """How often the turn passes from one to another."""
    return sum(one != two for one, two in pairwise(schedule))


class InterleavingFailed(AssertionError):
    """The check failed after at least one interleaving; the message shows it as a timeline."""


class NothingToInterleave(ValueError):
    """A callable reached no step: it sent no statement and called none of the named functions."""


class Stuck(AssertionError):
    """No thread moves, and none waits for a lock of the database."""


class NotAllTried(UserWarning):
    """The time was over before all orders were tried: what is left may hide a race."""
