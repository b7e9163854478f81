"""The meaning of an answer of a shop."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.intervals import Request
from loadtest.judge.outcomes import CORRECT_OUTCOMES

#: The shortest and the longest time that a buyer waits before asking again. The time is drawn at
#: random, so that not all ask at once.
RETRY_DELAY_SECONDS = (0.2, 0.6)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, as a target reads it."""

    outcome: str  # one of OUTCOMES (judge/outcomes.py), set by the functions below
    order: int | str | None = None  # the number of the order, if the answer has one
    why: str = ""  # the shop's message on an error
    open: bool = False  # whether the purchase may have happened although the answer has no order
    after: float = 0.0  # the shop's Retry-After in seconds, if too many buyers wait
    #: Further fields of the answer that the judge compares. Only this project's shop has them.
    body: Mapping[str, Any] = field(default_factory=dict)

    def retry_delay(self) -> float:
        """Return the seconds to wait before asking again."""
        return self.after + random.uniform(*RETRY_DELAY_SECONDS)

    def record(self, request: Request) -> None:
        """Record this answer in its request, with the present time.

        An order or an error that JSON cannot represent, such as a UUID, becomes text.
        """
        body = {"order": self.order, "error": self.why, **self.body}
        for name in ("order", "error"):
            if not isinstance(body[name], str | int | float | None):
                body[name] = str(body[name])
        request.receive_answer(self.outcome, body)
        if self.open:
            request.type = "info"  # Jepsen's word: the purchase may or may not have happened

    def count(self, response: Any) -> None:
        """Let Locust count the response: as a success if its outcome is in CORRECT_OUTCOMES."""
        if self.outcome in CORRECT_OUTCOMES:
            response.success()
        else:
            response.failure(f"{response.status_code} {self.outcome}")


def sold(order: int | str | None = None) -> Answer:
    """Return the Answer that the buyer got a unit.

    order  the number of the order, if the shop's answer has one
    """
    return Answer("sold", order)


def sold_out() -> Answer:
    """Return the Answer that no unit is left and the buyer got none."""
    return Answer("sold_out")


def again(why: str = "") -> Answer:
    """Return the Answer that nothing was sold and that the shop asks to try again.

    The buyer tries again until the deadline.
    """
    return Answer("busy", why=why)


def error(why: str) -> Answer:
    """Return the Answer that the shop failed, or that its answer cannot be understood.

    The purchase may have happened, so the buyer does not try again, and the verdict is `unknown`
    unless the sale is oversold.
    """
    return Answer("error", why=why, open=True)


#: The answer that is recorded for a request without one.
NO_ANSWER = Answer("unknown", open=True)
