"""The meaning of an answer of a shop."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.intervals import Request
from loadtest.judge.outcomes import CORRECT_OUTCOMES

#: Seconds that a buyer waits before asking again, at random, so that not all ask at once.
RETRY_PAUSE_SECONDS = (0.2, 0.6)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, as a target reads it."""

    outcome: str  # one of OUTCOMES (judge/outcomes.py); made by the functions below
    order: int | str | None = None  # the number of the order, where the answer names it
    why: str = ""  # what the shop said of an error
    open: bool = False  # whether the purchase may have happened all the same
    after: float = 0.0  # seconds after which the shop asks to come back: too many wait there
    #: What else it says that the judge compares; of this project's shop alone.
    body: Mapping[str, Any] = field(default_factory=dict)

    def pause(self) -> float:
        """Seconds to wait before asking again."""
        return self.after + random.uniform(*RETRY_PAUSE_SECONDS)

    def record(self, request: Request) -> None:
        """Record it as the answer to this request, now. A value that JSON does not have, such as
        a UUID, becomes text."""
        body = {"order": self.order, "error": self.why, **self.body}
        for name in ("order", "error"):
            if not isinstance(body[name], str | int | float | None):
                body[name] = str(body[name])
        request.answer(self.outcome, body)
        if self.open:
            request.type = "info"

    def count(self, response: Any) -> None:
        """Let Locust count its response: what a correct shop answers is a success."""
        if self.outcome in CORRECT_OUTCOMES:
            response.success()
        else:
            response.failure(f"{response.status_code} {self.outcome}")


def sold(order: int | str | None = None) -> Answer:
    """The buyer got a unit; `order` is the number of its order, if the answer names it."""
    return Answer("sold", order)


def sold_out() -> Answer:
    """No unit is left, and the buyer got none."""
    return Answer("sold_out")


def again(why: str = "") -> Answer:
    """Nothing was sold, and the shop asks to try again: the buyer does, until the deadline."""
    return Answer("busy", why=why)


def error(why: str) -> Answer:
    """The shop failed, or answered what a buyer cannot use. The purchase may have happened, so the
    buyer does not ask again, and without an oversell there is no verdict."""
    return Answer("error", why=why, open=True)


#: The answer of a request to which none came.
NO_ANSWER = Answer("unknown", open=True)
