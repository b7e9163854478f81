"""The outcomes of a purchase, and how buyers, Locust and the judge treat each of them.

A new outcome of the shop needs a row here: tools/tests/test_outcomes.py compares the table with the
shop's outcomes.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseOutcome:
    """The meaning of one outcome.

    event_type   the type of the answer's event in the history: `ok`, the buyer has a unit; `fail`,
                 the request sold nothing; `info`, the request may have sold a unit
    is_final     whether the outcome decides if the buyer gets a unit: `sold` and `sold_out`
    is_retried   whether the buyer sends another request with the same key
    is_correct   whether a correct shop gives this answer while its servers run; Locust counts it as
                 a success
    needs_begin  whether a node gives this answer only after it has begun the purchase
    """

    event_type: str = "fail"
    is_final: bool = False
    is_retried: bool = False
    is_correct: bool = False
    needs_begin: bool = False


#: Every outcome of an answer to POST /buy, and `unknown`, which a buyer without an answer records.
#: `closed`, `throttled` and `error` are neither final nor retried: after them a buyer gives up.
OUTCOMES: Mapping[str, PurchaseOutcome] = {
    "sold": PurchaseOutcome(event_type="ok", is_final=True, is_correct=True, needs_begin=True),
    "sold_out": PurchaseOutcome(is_final=True, is_correct=True, needs_begin=True),
    "closed": PurchaseOutcome(is_correct=True, needs_begin=True),
    "busy": PurchaseOutcome(is_retried=True, is_correct=True, needs_begin=True),
    "lost": PurchaseOutcome(is_retried=True, is_correct=True, needs_begin=True),
    "unavailable": PurchaseOutcome(is_retried=True),
    "throttled": PurchaseOutcome(is_correct=True),
    "full": PurchaseOutcome(is_retried=True, is_correct=True),
    "error": PurchaseOutcome(),
    "unknown": PurchaseOutcome(event_type="info", is_retried=True),
}

FINAL_OUTCOMES = frozenset(name for name, outcome in OUTCOMES.items() if outcome.is_final)
RETRIED_OUTCOMES = frozenset(name for name, outcome in OUTCOMES.items() if outcome.is_retried)
CORRECT_OUTCOMES = frozenset(name for name, outcome in OUTCOMES.items() if outcome.is_correct)
BEGUN_OUTCOMES = frozenset(name for name, outcome in OUTCOMES.items() if outcome.needs_begin)
#: Outcomes of requests that certainly sold nothing, after which the buyer sends another request.
RETRIED_REFUSALS = frozenset(
    name for name in RETRIED_OUTCOMES if OUTCOMES[name].event_type == "fail"
)


def get_event_type(outcome: str) -> str:
    """Return the type of an answer's event; `fail` if the outcome is not in OUTCOMES."""
    return OUTCOMES[outcome].event_type if outcome in OUTCOMES else "fail"
