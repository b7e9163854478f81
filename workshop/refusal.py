"""The end of a check: passed, refused with what happened, or undecided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.run import Cell

#: Exit codes of `check`.
PASSED, REFUSED, UNDECIDED = 0, 1, 2
#: The name of the copy that is checked, whichever lesson it belongs to.
CHECKED = "exercise.py"


class Undecided(RuntimeError):
    """The check could not decide: a server did not start, or a fault did not happen. The message
    says what was missing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An effect that the goal of the exercise forbids.

    code   its name in lessons.toml, where its reason and its question are
    facts  what the places of its headline and its reason are filled with
    story  what happened, a line each
    """

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    story: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a check. `printed` is what the participant's code printed, `cells` the verdicts
    of the whole row of faults."""

    refusal: Refusal | None = None
    undecided: str = ""
    printed: str = ""
    cells: Sequence[Cell] = ()

    @property
    def exit_code(self) -> int:
        return UNDECIDED if self.undecided else REFUSED if self.refusal else PASSED
