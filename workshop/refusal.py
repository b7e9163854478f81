"""The result of a check of a participant's solution: passed, refused, or undecided.

A solution with a harmful effect, such as a unit that is sold twice, gets a refusal that describes
the effect. Undecided means that the check itself failed, for example because a server did not
start. In workshop/checks a function `_check_...` returns the Refusal for the mistake that it looks
for, or None. So `_check_a() or _check_b()` is the first refusal, and `refusal is None` means that
the solution passed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.run import Cell

#: Exit codes of `check`.
PASSED = 0
REFUSED = 1
UNDECIDED = 2
#: The checks read a copy of the participant's file. The copy has this name in every lesson.
COPY_NAME = "exercise.py"


class Undecided(RuntimeError):
    """The check could not decide, for example because a server did not answer.

    The message says what was missing.
    """


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a participant's solution was not accepted.

    code     the refusal's name in lessons.toml, which has its headline, reason and question
    details  the values of the placeholders in the headline and the reason
    story    the timeline of the check up to the harmful effect, in lines of text
    """

    code: str
    details: Mapping[str, Any] = field(default_factory=dict)
    story: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: passed, refused or undecided.

    refusal           why the solution was refused; None if it passed or the check was undecided
    undecided_reason  why the check was undecided; empty if it was not
    output            the output of the participant's code
    cells             the results of the participant's file under each fault, for the check of
                      lesson 12, which causes many faults; empty for all other checks
    """

    refusal: Refusal | None = None
    undecided_reason: str = ""
    output: str = ""
    cells: Sequence[Cell] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the command `check` for this result."""
        if self.undecided_reason:
            return UNDECIDED
        return REFUSED if self.refusal else PASSED
