"""Why an exercise is refused: a code, one line, what happened, why, and a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


class Undecided(RuntimeError):
    """The check could not decide: a server did not start, or a fault did not happen. Never the
    participant's fault; the message says what was missing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An effect that the goal of the exercise forbids.

    code   its name in lessons.toml, where its reason and its question are
    facts  what the headline's places are filled with
    story  what happened, a line each
    """

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    story: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Refusal:
        """From `as_dict`, as it comes from another process."""
        return cls(str(found["code"]), dict(found["facts"]), list(found["story"]))
