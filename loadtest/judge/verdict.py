"""The judge: the verdict on a sale, from its orders and its history.

Pure functions that talk to no server. An answer that left open what happened (`unknown`, or none at
all) is settled by the orders after the drain: the purchase happened if the buyer's key has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from loadtest.judge.intervals import ProductHistory
from loadtest.judge.rules import find
from loadtest.judge.run import Judged
from loadtest.judge.sale_record import OUTCOMES, Asked, Finding, Record, more

__all__ = ["ASK_AGAIN", "EXIT_CODES", "OUTCOMES", "Asked", "Finding", "Judgement", "judge"]

#: After one of these outcomes a buyer asks again with the same key.
ASK_AGAIN = frozenset({"busy", "lost", "full", "unavailable", "unknown"})

#: Exit code of a Locust run, by verdict.
EXIT_CODES = {"exact": 0, "oversold": 3, "undersold": 4, "deadlock": 5, "unknown": 6, "not_run": 7}

#: It is a deadlock when nobody can buy for so many ttl after the fault was healed.
DEADLOCK_AFTER = 3

#: What to do about buyers whose last answer was this.
REMEDY = {
    "throttled": "the shop limits purchases: unset BUY_RATE_LIMIT",
    "full": "too many waited at a time: raise SHOP_MAX_WAITING, or a longer --deadline",
    "closed": "somebody opened another sale of the product meanwhile: repeat the run by itself",
    "busy": "the lock was not free in time: fewer buyers, a shorter hold, or a longer --deadline",
    "unknown": "their requests were not answered: see the nodes' log",
    "unavailable": "a server of the shop did not answer: see the nodes' log",
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the figures behind it, and the violations that were found. What `Judged` has of
    `summary.json` is said there.

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
    outcomes: dict[str, int]
    never_arrived: int
    never_asked: int
    never_answered: int
    recovered: Mapping[str, int]
    findings: Sequence[Finding]
    violations: Sequence[str]
    why: str

    def as_run(self) -> Judged:
        """Its part of a run in `summary.json`."""
        found: dict[str, Any] = {name: getattr(self, name) for name in Judged.__annotations__}
        found["violations"] = list(self.violations)
        found["findings"] = [finding.what for finding in self.findings]
        return cast(Judged, found)


def judge(
    *,
    initial_stock: int,
    stock_left: int,
    orders: Sequence[Mapping[str, Any]],
    history: ProductHistory,
    ttl: float | None = None,
    fired: bool = True,
    orphan_lock: str = "",
    leaked: Sequence[str] = (),
    unsettled: int | None = 0,
    asked: Asked | None = None,
) -> Judgement:
    """Judge one sale after its drain, or after its deadline.

    initial_stock  units that the sale opened with, as the shop has it
    stock_left     units that the shop still shows
    orders         the sale's orders as GET /sales/<id>/orders has them
    history        the events of the sale's product: at least the requests of its buyers
    ttl            seconds that a lock survives its holder; None: nothing is a deadlock
    fired          whether the fault happened; a failed `prove` event in the history also says no
    orphan_lock    the key of a lock that is left after everybody has gone, if any
    leaked         keys that the sale left on the lock servers and that no lock leaves there
    unsettled      promises whose order is not written yet; None: nobody knows how many
    asked          what the run asked of the shop; None: a sale of `initial_stock` units, no more
    """
    asked = asked or Asked(stock=initial_stock)
    record = Record(asked, initial_stock, stock_left, orders, history)
    findings = find(record)
    if orphan_lock:
        what = f"{orphan_lock} is still there, and nobody holds it"
        findings.append(Finding("orphan_lock", what, spoils=False))
    if leaked:
        what = f"{leaked[0]} was left on the lock server{more(leaked)}"
        findings.append(Finding("leaked_key", what))
    if unsettled != 0:
        many = "nobody knows how many" if unsettled is None else unsettled
        what = f"{many} promised orders are not written: is manage.py settle running?"
        findings.append(Finding("unsettled", what, voids=True))
    fired = fired and _proved(record.history)
    verdict = _verdict(record, findings, fired=fired, ttl=ttl)
    return Judgement(
        verdict=verdict,
        initial_stock=asked.stock,
        orders=len(orders),
        stock_left=stock_left,
        oversold=record.oversold,
        undersold=record.undersold,
        lost_updates=record.lost_updates,
        outcomes=record.outcomes,
        never_arrived=record.never_arrived,
        never_asked=record.never_asked,
        never_answered=len(record.unanswered),
        recovered=record.recovered,
        findings=tuple(findings),
        violations=tuple(dict.fromkeys(finding.rule for finding in findings)),
        why=_why(record, findings, fired=fired) if verdict == "unknown" else "",
    )


def _verdict(record: Record, findings: Sequence[Finding], *, fired: bool, ttl: float | None) -> str:
    if record.oversold:
        return "oversold"
    if not fired or any(finding.voids for finding in findings):
        return "unknown"
    if ttl is not None and _deadlocked(record, ttl):
        return "deadlock"
    nothing_sold = not record.orders and record.initial_stock > 0
    if not record.last or nothing_sold or _unserved(record):
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


# --- why nothing can be concluded, in one sentence that says what to do -------------------------


def _unserved(record: Record) -> str:
    """Which buyers were not served, with their reasons; empty if all were.

    A buyer who was left without a final answer might have bought, or been refused wrongly.
    """
    parts = []
    if record.never_arrived:
        parts.append(f"{record.never_arrived} buyers never arrived")
    if record.never_asked:
        parts.append(f"{record.never_asked} never asked")
    waiting = Counter(last.outcome for last in record.unanswered)
    if waiting:
        kinds = ", ".join(f"{count} {outcome}" for outcome, count in waiting.most_common())
        parts.append(f"{sum(waiting.values())} had no final answer ({kinds})")
        most = waiting.most_common(1)[0][0]
        remedy = _error(record) if most == "error" else REMEDY.get(most, "")
        parts += [remedy] if remedy else []
    return "; ".join(parts)


def _error(record: Record) -> str:
    """What the shop said to a buyer whose last answer was `error`."""
    said = [request.error for request in record.requests if request.outcome == "error"]
    return f"the shop says: {said[-1]}" if said and said[-1] else ""


def _why(record: Record, findings: Sequence[Finding], *, fired: bool) -> str:
    """Why the verdict is `unknown`."""
    if not fired:
        return "it is not proved that the fault happened"
    voids = [finding.what for finding in findings if finding.voids]
    spoils = [finding.what for finding in findings if finding.spoils]
    if voids:
        return voids[0]
    if not record.last:
        return "nobody asked"
    return _unserved(record) or (
        spoils[0] if record.orders and spoils else "nobody bought anything"
    )
