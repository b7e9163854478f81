"""The judge: the verdict on a sale, from its orders and its history.

It talks to no server. An answer that left open what happened (`unknown`, or none at all) is settled
by the orders after the drain: the purchase happened if the buyer's key has one.
"""

from collections import Counter
from functools import cached_property

from loadtest.judge import lock_rules, order_rules, record_rules, stock_rules
from loadtest.judge.finding import Finding
from loadtest.judge.history import Event
from loadtest.judge.rule import Rule
from loadtest.judge.run import Judged
from loadtest.judge.sale_record import FINAL, Record

#: Every rule, in the order in which `summary.json` lists their findings.
RULES: tuple[Rule, ...] = (
    record_rules.broken_history,
    record_rules.wrong_stock,
    record_rules.unrecorded,
    record_rules.missing_fields,
    record_rules.missing_events,
    record_rules.outside_request,
    record_rules.foreign_key,
    record_rules.wrong_lock,
    record_rules.contradiction,
    record_rules.wrong_time,
    record_rules.commit_order,
    order_rules.lost_update,
    order_rules.wrong_amount,
    order_rules.double_number,
    order_rules.lost_ack,
    order_rules.false_sold_out,
    order_rules.false_refusal,
    order_rules.ghost_order,
    order_rules.double_order,
    lock_rules.fence_fell_over_orders,
    lock_rules.fence_fell_over_grants,
    lock_rules.overlap,
    lock_rules.false_release,
    lock_rules.unlocked,
    lock_rules.expired_hold,
    lock_rules.wrong_fence,
    lock_rules.shared_token,
    stock_rules.stale_write,
    stock_rules.stock_that_was_not_there,
    stock_rules.unit_sold_twice,
    stock_rules.sold_out_with_units_left,
    stock_rules.orphan_lock,
    stock_rules.leaked_key,
    stock_rules.unsettled,
)

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
#: The same for another shop than this project's.
REMEDY_ELSEWHERE = {
    "busy": "read() said again() until the deadline: fewer buyers, or a longer --deadline",
    "unknown": "their requests were not answered: see the log of the shop",
}


class Judgement(Record):
    """A sale with the violations that were found in it, and the verdict on it. What `Judged` has
    of `summary.json` is said there."""

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The violations with their evidence."""
        return tuple(finding for rule in RULES if (finding := rule.find(self)) is not None)

    @property
    def violations(self) -> tuple[str, ...]:
        """The names of the findings, each once."""
        return tuple(dict.fromkeys(finding.rule for finding in self.findings))

    @cached_property
    def waiting(self) -> Counter[str]:
        """The last outcomes of those who asked and were neither sold a unit nor answered that none
        is left, without those who were excused."""
        last = ((key, request.outcome) for key, request in self.last.items())
        return Counter(said for key, said in last if said not in FINAL and key not in self.excused)

    @property
    def never_answered(self) -> int:
        return self.waiting.total()

    @property
    def verdict(self) -> str:
        return self._conclusion[0]

    @property
    def why(self) -> str:
        """Why nothing can be concluded, in one sentence that says what to do; else empty."""
        return self._conclusion[1]

    @cached_property
    def _conclusion(self) -> tuple[str, str]:
        """The verdict, and why it is `unknown`."""
        if self.oversold:
            return "oversold", ""
        if not self.fired or self._phases("prove", "fail"):
            return "unknown", "it is not proved that the fault happened"
        if voids := [finding.what for finding in self.findings if finding.voids]:
            return "unknown", voids[0]
        if self._is_deadlocked():
            return "deadlock", ""
        nothing_sold = not self.orders and self.initial_stock > 0
        unserved = self._unserved() if self.last else "nobody asked"
        if unserved or nothing_sold:
            return "unknown", unserved or "nobody bought anything"
        if self.undersold:
            return "undersold", ""
        # Fewer buyers than units cannot show an oversell, but a wrong record is not exact either.
        spoils = [finding.what for finding in self.findings if finding.spoils]
        return ("unknown", spoils[0]) if spoils else ("exact", "")

    def as_run(self) -> Judged:
        """Return the judge's part of a run in `summary.json`."""
        return {
            "initial_stock": self.initial_stock,
            "orders": len(self.orders),
            "stock_left": self.stock_left,
            "oversold": self.oversold,
            "undersold": self.undersold,
            "lost_updates": self.lost_updates,
            "outcomes": self.outcomes,
            "never_arrived": self.never_arrived,
            "never_asked": self.never_asked,
            "never_answered": self.never_answered,
            "violations": list(self.violations),
            "findings": [finding.what for finding in self.findings],
            "verdict": self.verdict,
            "why": self.why,
        }

    def _is_deadlocked(self) -> bool:
        """Whether buyers asked for DEADLOCK_AFTER x ttl after the heal, with stock left, and got
        none.

        A holder may finish its purchase after the heal, and leave a lock that stays forever when it
        releases. So the time counts from the last purchase.
        """
        healed = self._phases("heal", "ok")
        units_left = self.stock_left > 0 or len(self.orders) < self.initial_stock
        if self.ttl is None or not healed or not units_left:
            return False
        bought = [
            one.answered_at or one.sent_at
            for one in self.requests
            if one.type == "ok" or (one.type == "info" and one.attempt in self.number_of)
        ]
        since = max([healed[-1]["t"], *bought])
        asking = [one for one in self.requests if (one.answered_at or one.sent_at) > since]
        if not asking or any(one.outcome == "sold_out" for one in asking):
            return False
        began = max(since, min(one.sent_at for one in asking))
        asked_until = max(one.answered_at or one.sent_at for one in asking)
        return asked_until - began >= DEADLOCK_AFTER * self.ttl * 1e9

    def _unserved(self) -> str:
        """Which buyers were not served, with their reasons; empty if all were.

        A buyer who was left without a final answer might have bought, or been refused wrongly.
        """
        parts = []
        if self.never_arrived:
            parts.append(f"{self.never_arrived} buyers never arrived")
        if self.never_asked:
            parts.append(f"{self.never_asked} never asked")
        if waiting := self.waiting.most_common():
            kinds = ", ".join(f"{count} {outcome}" for outcome, count in waiting)
            parts.append(f"{self.never_answered} had no final answer ({kinds})")
            most = waiting[0][0]
            said = [request.error for request in self.requests if request.outcome == "error"]
            shop_says = f"the shop says: {said[-1]}" if said and said[-1] else ""
            remedies = REMEDY if self.is_own_shop else REMEDY_ELSEWHERE
            parts += filter(None, [shop_says if most == "error" else remedies.get(most)])
        return "; ".join(parts)

    def _phases(self, phase: str, kind: str) -> list[Event]:
        """The events of faults of this phase and type."""
        faults = [event for event in self.events if event["by"] == "fault"]
        return [event for event in faults if (event.get("phase"), event["type"]) == (phase, kind)]
