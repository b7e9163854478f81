"""Why nothing can be concluded from a sale, in one sentence that says what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loadtest.judge.sale_record import Finding, Record

#: What to do about buyers whose last answer was this.
REMEDY = {
    "throttled": "the shop limits purchases: unset BUY_RATE_LIMIT",
    "full": "too many waited at a time: raise SHOP_MAX_WAITING, or a longer --deadline",
    "closed": "somebody opened another sale of the product meanwhile: repeat the run alone",
    "busy": "the lock was not free in time: fewer buyers, a shorter hold, or a longer --deadline",
    "unknown": "their requests were not answered: see the nodes' log",
    "unavailable": "a server of the shop did not answer: see the nodes' log",
}


def unserved(record: Record) -> str:
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


def why(record: Record, findings: Sequence[Finding], *, fired: bool) -> str:
    """Why the verdict is `unknown`."""
    if not fired:
        return "it is not proved that the fault happened"
    voids = [finding.what for finding in findings if finding.voids]
    spoils = [finding.what for finding in findings if finding.spoils]
    if voids:
        return voids[0]
    if not record.last:
        return "nobody asked"
    return unserved(record) or (spoils[0] if record.orders and spoils else "nobody bought anything")
