"""The judge: what a sale came to, from its orders and from what its buyers were told.

Pure functions; nothing here talks to a server. An answer that left open what happened (`unknown`,
or none at all) is settled by the orders after the drain: with an order under the buyer's key it
happened, without one it did not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.history import Event
from loadtest.judge.rules import find
from loadtest.judge.sale_record import Finding, Record, Told

__all__ = ["ASK_AGAIN", "EXIT_CODES", "OUTCOMES", "Finding", "Judgement", "Told", "judge"]

OUTCOMES = (
    "sold",
    "sold_out",
    "busy",
    "lost",
    "unavailable",
    "throttled",
    "error",
    "unknown",
)
#: A buyer who is told one of these asks again with the same key.
ASK_AGAIN = frozenset({"busy", "lost", "unavailable", "unknown"})

#: Exit code of a Locust run, by verdict.
EXIT_CODES = {"exact": 0, "oversold": 3, "undersold": 4, "deadlock": 5, "unknown": 6, "not_run": 7}

#: After a fault is healed somebody buys within so many ttl, or it is a deadlock.
PATIENCE = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict (design section 4), the numbers it follows from, and what else was found.

    recovered   orders that no buyer was told of though an answer had left them open, by key
    findings    what no correct sale shows, with the evidence
    violations  the names of the findings, each once
    """

    verdict: str
    initial_stock: int
    orders: int
    stock_left: int
    oversold: int
    undersold: int
    lost_updates: int
    outcomes: Mapping[str, int]
    recovered: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    violations: Sequence[str] = field(default_factory=tuple)

    def as_run(self) -> dict[str, Any]:
        """Its part of a run in `summary.json` (design section 4)."""
        return {
            "initial_stock": self.initial_stock,
            "orders": self.orders,
            "stock_left": self.stock_left,
            "oversold": self.oversold,
            "undersold": self.undersold,
            "lost_updates": self.lost_updates,
            "outcomes": dict(self.outcomes),
            "violations": list(self.violations),
            "verdict": self.verdict,
        }


def judge(
    *,
    initial_stock: int,
    stock_left: int,
    orders: Sequence[Mapping[str, Any]],
    told: Sequence[Told],
    history: Sequence[Event] = (),
    ttl: float | None = None,
    fired: bool = True,
    orphan_lock: str = "",
) -> Judgement:
    """Judge one sale that was drained, or given up at its deadline.

    initial_stock  units that the sale opened with
    stock_left     units that the shop still shows
    orders         the sale's orders as GET /sales/<id>/orders gives them
    told           one entry per buyer
    history        the events of the sale's product, oldest first (history.by_product)
    ttl            seconds that a lock survives its holder; without it nothing is a deadlock
    fired          whether the fault was made; an event that could not prove it says no as well
    orphan_lock    the key of a lock that was still there long after everybody had left, if any
    """
    record = Record(initial_stock, stock_left, orders, told, history)
    findings = find(record)
    if orphan_lock:
        what = f"{orphan_lock} is still there, and nobody holds it"
        findings.append(Finding("orphan_lock", what, spoils=False))
    count = Counter(dict.fromkeys(OUTCOMES, 0))
    count.update(buyer.outcome for buyer in record.buyers)
    sold = len(orders)
    answered = sum(not record.gave_up(buyer) for buyer in record.buyers)
    oversold = max(0, sold - initial_stock)
    undersold = max(0, min(initial_stock, answered) - sold)
    if oversold:
        verdict = "oversold"
    elif not (fired and _proved(history)):
        verdict = "unknown"
    elif ttl is not None and _deadlocked(record, ttl):
        verdict = "deadlock"
    elif not record.buyers or (sold == 0 and initial_stock > 0) or _open_question(record):
        verdict = "unknown"
    elif undersold:
        verdict = "undersold"
    else:
        # Fewer buyers than the stock cannot show an oversell; a wrong record is still no exact
        # sale.
        verdict = "unknown" if any(finding.spoils for finding in findings) else "exact"
    return Judgement(
        verdict=verdict,
        initial_stock=initial_stock,
        orders=sold,
        stock_left=stock_left,
        oversold=oversold,
        undersold=undersold,
        lost_updates=record.lost_updates,
        outcomes=dict(count),
        recovered=record.recovered,
        findings=tuple(findings),
        violations=tuple(dict.fromkeys(finding.rule for finding in findings)),
    )


def _proved(history: Sequence[Event]) -> bool:
    """Whether no fault looked for its own evidence in vain."""
    return not any(
        event["by"] == "fault" and event.get("phase") == "prove" and event["type"] == "fail"
        for event in history
    )


def _open_question(record: Record) -> bool:
    """Whether a buyer without an order might have bought, had it been asked for longer.

    Once everything is gone no answer but sold_out could have come. An `error` says that the shop
    or the test is wrong, and leaves everything open.
    """
    waiting = [
        buyer
        for buyer in record.buyers
        if buyer.outcome not in {"sold", "sold_out"} and buyer.key not in record.number_of
    ]
    if record.units_left:
        return any(not record.gave_up(buyer) for buyer in waiting)
    return any(buyer.outcome == "error" for buyer in waiting)


def _deadlocked(record: Record, ttl: float) -> bool:
    """Whether after the heal nobody could buy though they asked for 3 x ttl and stock was left.

    A holder that was inside may still finish its purchase after the heal, and lock up for ever
    with its release: so the time counts from the last purchase.
    """
    healed = [
        event["t"]
        for event in record.history
        if event["by"] == "fault" and event.get("phase") == "heal" and event["type"] == "ok"
    ]
    if not healed or not record.units_left:
        return False
    bought = [
        request.answered or request.sent
        for request in record.requests
        if request.type == "ok" or (request.type == "info" and request.attempt in record.number_of)
    ]
    since = max([healed[-1], *bought])
    asking = [r for r in record.requests if (r.answered or r.sent) > since]
    if not asking or any(request.outcome == "sold_out" for request in asking):
        return False
    began = max(since, min(request.sent for request in asking))
    asked_until = max(request.answered or request.sent for request in asking)
    return asked_until - began >= PATIENCE * ttl * 1e9
