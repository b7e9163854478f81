"""What a shop's answer to a purchase means: sold, sold out, or another outcome."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.intervals import Request
from loadtest.judge.outcomes import CORRECT_OUTCOMES

#: The shortest and the longest time that a buyer waits before it repeats its request. The time is
#: random, so that the buyers do not repeat their requests all at once.
RETRY_DELAY_SECONDS = (0.2, 0.6)


@dataclass(frozen=True, slots=True)
class Answer:
    """The meaning of one answer, as Target.read() returns it."""

    outcome: str  # one of OUTCOMES (judge/outcomes.py), set by the functions below
    order: int | str | None = None  # the number of the order, if the answer has one
    why: str = ""  # the shop's error message, or its reason to refuse the purchase
    #: Whether a unit may have been sold, although the answer does not say so.
    may_have_sold: bool = False
    retry_after_seconds: float = 0.0  # the shop's Retry-After, if too many buyers wait
    #: Further fields of the answer that the judge compares. Only this project's shop has them.
    body: Mapping[str, Any] = field(default_factory=dict)

    def choose_retry_delay(self) -> float:
        """Return the seconds to wait before the request is repeated."""
        return self.retry_after_seconds + random.uniform(*RETRY_DELAY_SECONDS)

    def record_in(self, request: Request) -> None:
        """Record this answer in the request that it answers, with the present time.

        An order number or an error that JSON cannot represent, such as a UUID, becomes text.
        """
        body = {"order": self.order, "error": self.why, **self.body}
        for name in ("order", "error"):
            if not isinstance(body[name], str | int | float | None):
                body[name] = str(body[name])
        request.receive_answer(self.outcome, body)
        if self.may_have_sold:
            request.type = "info"  # as in Jepsen: the purchase may or may not have happened

    def let_locust_count(self, response: Any) -> None:
        """Let Locust count the response as a success or as a failure.

        Any of CORRECT_OUTCOMES is a success. `sold_out` is one of them, because a correct shop
        gives this answer when no unit is left.
        """
        if self.outcome in CORRECT_OUTCOMES:
            response.success()
        else:
            response.failure(f"{response.status_code} {self.outcome}")


def sold(order: int | str | None = None) -> Answer:
    """Return the Answer which means that the buyer got a unit.

    order  the number of the order, if the shop's answer has one
    """
    return Answer("sold", order)


def sold_out() -> Answer:
    """Return the Answer which means that no unit is left, so the buyer got none."""
    return Answer("sold_out")


def again(why: str = "") -> Answer:
    """Return the Answer which means that nothing was sold, and that the buyer may try again.

    Its outcome is `busy`, after which the buyer repeats the purchase until the deadline.
    """
    return Answer("busy", why=why)


def error(why: str) -> Answer:
    """Return the Answer which means that the shop failed, or that its answer is unintelligible.

    A unit may have been sold, so the buyer does not try again, and the verdict is `unknown` unless
    the sale is oversold.
    """
    return Answer("error", why=why, may_have_sold=True)


#: What is recorded for a request if a unit may or may not have been sold: it got no answer, or the
#: answer is not one of the shop.
UNKNOWN_OUTCOME = Answer("unknown", may_have_sold=True)
