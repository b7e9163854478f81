"""The outcomes of a purchase, in one table: what buyers, Locust and the judge make of each.

A new outcome of the shop needs a row here; tools/tests/test_outcomes.py compares both.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseOutcome:
    """The meaning of one outcome.

    event_type  the type of its event in the history: `ok`, the buyer has a unit; `fail`, this
                request sold nothing; `info`, it may have sold a unit
    final       whether the buyer is served: no other order is owed to it
    retried     whether the buyer asks again with the same key
    correct     whether a correct shop answers it while its servers run: a success for Locust
    begun       whether a node answers it only after it has begun the purchase
    """

    event_type: str = "fail"
    final: bool = False
    retried: bool = False
    correct: bool = False
    begun: bool = False


#: Every outcome that POST /buy answers with, or that a buyer without an answer concludes. Neither
#: final nor retried are `closed`, `throttled` and `error`: the buyer gives up, unserved.
OUTCOMES: Mapping[str, PurchaseOutcome] = {
    "sold": PurchaseOutcome(event_type="ok", final=True, correct=True, begun=True),
    "sold_out": PurchaseOutcome(final=True, correct=True, begun=True),
    "closed": PurchaseOutcome(correct=True, begun=True),
    "busy": PurchaseOutcome(retried=True, correct=True, begun=True),
    "lost": PurchaseOutcome(retried=True, correct=True, begun=True),
    "unavailable": PurchaseOutcome(retried=True),
    "throttled": PurchaseOutcome(correct=True),
    "full": PurchaseOutcome(retried=True, correct=True),
    "error": PurchaseOutcome(),
    "unknown": PurchaseOutcome(event_type="info", retried=True),
}

FINAL_OUTCOMES = frozenset(name for name, outcome in OUTCOMES.items() if outcome.final)
RETRIED_OUTCOMES = frozenset(name for name, outcome in OUTCOMES.items() if outcome.retried)
CORRECT_OUTCOMES = frozenset(name for name, outcome in OUTCOMES.items() if outcome.correct)
BEGUN_OUTCOMES = frozenset(name for name, outcome in OUTCOMES.items() if outcome.begun)
#: Answers by which nothing was sold, and after which the buyer asks again.
RETRIED_REFUSALS = frozenset(
    name for name in RETRIED_OUTCOMES if OUTCOMES[name].event_type == "fail"
)


def event_type(outcome: str) -> str:
    """Return the type of the event of an answer with this outcome; `fail` if it has no row."""
    return OUTCOMES[outcome].event_type if outcome in OUTCOMES else "fail"
