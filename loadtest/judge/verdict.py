"""The judge: the verdict on a sale, from its orders, the replies to its buyers and its history.

Pure functions that talk to no server. An answer that left open what happened (`unknown`, or none at
all) is settled by the orders after the drain: the purchase happened if the buyer's key has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.intervals import ProductHistory
from loadtest.judge.rules import find
from loadtest.judge.run import Judged
from loadtest.judge.sale_record import OUTCOMES, Finding, Record, Reply

__all__ = ["ASK_AGAIN", "EXIT_CODES", "OUTCOMES", "Finding", "Judgement", "Reply", "judge"]

#: After one of these outcomes a buyer asks again with the same key.
ASK_AGAIN = frozenset({"busy", "lost", "unavailable", "unknown"})

#: Exit code of a Locust run, by verdict.
EXIT_CODES = {"exact": 0, "oversold": 3, "undersold": 4, "deadlock": 5, "unknown": 6, "not_run": 7}

#: It is a deadlock when nobody can buy for so many ttl after the fault was healed.
DEADLOCK_AFTER = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the figures behind it, and the violations that were found.

    recovered   by key: orders that no answer named, after an answer that had left it open
    findings    the violations with their evidence
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

    def as_run(self) -> Judged:
        """Its part of a run in `summary.json`."""
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
    replies: Sequence[Reply],
    history: ProductHistory | None = None,
    ttl: float | None = None,
    fired: bool = True,
    orphan_lock: str = "",
) -> Judgement:
    """Judge one sale after its drain, or after its deadline.

    initial_stock  units that the sale opened with
    stock_left     units that the shop still shows
    orders         the sale's orders as GET /sales/<id>/orders has them
    replies        the last reply to each buyer
    history        the events of the sale's product
    ttl            seconds that a lock survives its holder; None: nothing is a deadlock
    fired          whether the fault happened; a failed `prove` event in the history also says no
    orphan_lock    the key of a lock that is left after everybody has gone, if any
    """
    record = Record(initial_stock, stock_left, orders, replies, history or ProductHistory())
    findings = find(record)
    if orphan_lock:
        what = f"{orphan_lock} is still there, and nobody holds it"
        findings.append(Finding("orphan_lock", what, spoils=False))
    return Judgement(
        verdict=_verdict(record, findings, fired=fired, ttl=ttl),
        initial_stock=initial_stock,
        orders=len(orders),
        stock_left=stock_left,
        oversold=record.oversold,
        undersold=record.undersold,
        lost_updates=record.lost_updates,
        outcomes=record.outcomes,
        recovered=record.recovered,
        findings=tuple(findings),
        violations=tuple(dict.fromkeys(finding.rule for finding in findings)),
    )


def _verdict(record: Record, findings: Sequence[Finding], *, fired: bool, ttl: float | None) -> str:
    if record.oversold:
        return "oversold"
    if not (fired and _proved(record.history)):
        return "unknown"
    if ttl is not None and _deadlocked(record, ttl):
        return "deadlock"
    nothing_sold = not record.orders and record.initial_stock > 0
    if not record.buyers or nothing_sold or _open_question(record):
        return "unknown"
    if record.undersold:
        return "undersold"
    # Fewer buyers than units cannot show an oversell, but a wrong record is not exact either.
    return "unknown" if any(finding.spoils for finding in findings) else "exact"


def _proved(history: ProductHistory) -> bool:
    """Whether no fault failed to prove that it happened."""
    return not any(
        event["by"] == "fault" and event.get("phase") == "prove" and event["type"] == "fail"
        for event in history.events
    )


def _open_question(record: Record) -> bool:
    """Whether a buyer without an order might have bought by asking for longer.

    Once all units are gone the answer would have been sold_out. After an `error` the shop or the
    test is wrong, and everything is open.
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
    """Whether buyers asked for DEADLOCK_AFTER x ttl after the heal, with stock left, and got none.

    A holder may finish its purchase after the heal, and leave a lock that stays forever when it
    releases. So the time counts from the last purchase.
    """
    healed = [
        event["t"]
        for event in record.history.events
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
    return asked_until - began >= DEADLOCK_AFTER * ttl * 1e9
