"""The outcomes of a purchase, and how buyers, Locust and the judge treat each of them.

A new outcome of the shop needs a row here: tools/tests/test_outcomes.py compares the table with the
shop's outcomes.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseOutcome:
    """The meaning of one outcome.

    event_type  the type of the answer's event in the history: `ok`, the buyer has a unit; `fail`,
                the request sold nothing; `info`, the request may have sold a unit
    final       whether the buyer is served, and needs no further answer
    retried     whether the buyer asks again with the same key
    correct     whether a correct shop gives this answer while its servers run; Locust counts it as
                a success
    begun       whether a node gives this answer only after it has begun the purchase
    """

    event_type: str = "fail"
    final: bool = False
    retried: bool = False
    correct: bool = False
    begun: bool = False


#: Every outcome of an answer to POST /buy, and `unknown`, which a buyer without an answer records.
#: `closed`, `throttled` and `error` are neither final nor retried: the buyer gives up, unserved.
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
#: Outcomes of requests that sold nothing, after which the buyer asks again.
RETRIED_REFUSALS = frozenset(
    name for name in RETRIED_OUTCOMES if OUTCOMES[name].event_type == "fail"
)


def event_type(outcome: str) -> str:
    """Return the type of an answer's event by its outcome; `fail` for one without a row."""
    return OUTCOMES[outcome].event_type if outcome in OUTCOMES else "fail"
