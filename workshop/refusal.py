"""The result of a check: passed, refused for an effect, or undecided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.run import Cell

#: Exit codes of `check`.
PASSED, REFUSED, UNDECIDED = 0, 1, 2
#: The name of the copy of a participant's file that is checked, in every lesson.
COPY_NAME = "exercise.py"


class Undecided(RuntimeError):
    """The check could not decide: a server did not start, or a fault did not happen.

    The message says what was missing.
    """


@dataclass(frozen=True, slots=True)
class Refusal:
    """A forbidden effect of the participant's code.

    code   the refusal's name in lessons.toml, which has its headline, reason and question
    facts  the values of the placeholders in the headline and the reason
    story  the lines of what happened
    """

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    story: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check.

    refusal    None if the exercise passed, or if the check was undecided
    undecided  the reason, or empty
    printed    the output of the participant's code
    cells      the verdicts of the faults, for a check that runs all of them
    """

    refusal: Refusal | None = None
    undecided: str = ""
    printed: str = ""
    cells: Sequence[Cell] = ()

    @property
    def exit_code(self) -> int:
        return UNDECIDED if self.undecided else REFUSED if self.refusal else PASSED
