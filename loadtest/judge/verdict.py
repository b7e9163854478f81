"""The judge: the verdict on a sale, from its orders and its history.

The judge connects to no server. If a buyer cannot know whether it bought (`unknown`, or no answer
at all), the orders at the end decide: the purchase happened if an order has the buyer's key.

The judge's verdict on one sale is not always that of the run. These functions may change it:

    rush/judge_rush.py               mark_incomplete_as_unknown: the rush was stopped or lost buyers
    rush/rush.py                     _add_third_party_findings: a third-party shop wrote orders too
                                     late, or changed orders from before the rush
    rush/locust/locust_rushes.py     _write_files: a file could not be written
    load/verdict.py                  _judge_product: a sale without buyers is exact if its stock is
                                     untouched; _combine: the worst verdict on a sale is the run's
    faults/chaos_rush.py             judge_chaos_sale: leases expired because the machine was slow
    commands/rushes.py               reread_sales: orders or stock have changed after the verdict
    commands/target.py               judge_again: the same in a third-party shop
"""

from collections import Counter
from functools import cached_property

from loadtest.judge import lock_rules, order_rules, record_rules, stock_rules
from loadtest.judge.finding import Finding, format_count
from loadtest.judge.history import Event
from loadtest.judge.outcomes import FINAL_OUTCOMES
from loadtest.judge.rule import Rule
from loadtest.judge.run import Judged
from loadtest.judge.sale_record import SaleRecord

#: All rules, in the order in which `summary.json` lists their findings.
RULES: tuple[Rule, ...] = (
    record_rules.broken_history,
    record_rules.wrong_stock,
    record_rules.unrecorded,
    record_rules.missing_fields,
    record_rules.missing_events,
    record_rules.outside_request,
    record_rules.wrong_answer,
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
    lock_rules.fence_fell_between_orders,
    lock_rules.fence_fell_between_grants,
    lock_rules.overlap,
    lock_rules.false_release,
    lock_rules.unlocked,
    lock_rules.expired_hold,
    lock_rules.wrong_fence,
    lock_rules.shared_token,
    stock_rules.stale_write,
    stock_rules.impossible_stock_seen,
    stock_rules.unit_sold_twice,
    stock_rules.sold_out_with_units_left,
    stock_rules.orphan_lock,
    stock_rules.leaked_key,
    stock_rules.unsettled,
)

#: The exit code of a Locust run, by verdict.
EXIT_CODES = {"exact": 0, "oversold": 3, "undersold": 4, "deadlock": 5, "unknown": 6, "not_run": 7}

#: A sale is deadlocked if no buyer can buy for this number of ttls, although stock is left. A lock
#: that expires is free after one ttl. The period begins when the fault is undone, or at the last
#: purchase if that is later.
DEADLOCK_AFTER_TTLS = 3

#: What to do about buyers without a final answer, by their last outcome.
REMEDIES = {
    "throttled": "the shop limits purchases: unset BUY_RATE_LIMIT",
    "full": "too many buyers waited at once: raise SHOP_MAX_WAITING or the --deadline",
    "closed": "another sale of the product was opened meanwhile: repeat this run alone",
    "busy": "the lock was not free in time: fewer buyers, a shorter hold or a longer --deadline",
    "unknown": "their requests were not answered: see the nodes' log",
    "unavailable": "a server of the shop did not answer: see the nodes' log",
}
#: REMEDIES for another shop than this project's.
FOREIGN_SHOP_REMEDIES = {
    "busy": "read() returned again() until the deadline: fewer buyers or a longer --deadline",
    "unknown": "their requests were not answered: see the log of the shop",
}


class Judgement(SaleRecord):
    """The verdict on a sale, and the violations that the judge's rules find in it."""

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The violations with their evidence."""
        findings = (rule.find(self) for rule in RULES)
        return tuple(finding for finding in findings if finding is not None)

    @property
    def violations(self) -> tuple[str, ...]:
        """The names of the violated rules, each once."""
        return tuple(dict.fromkeys(finding.rule for finding in self.findings))

    @cached_property
    def buyers_by_unfinished_outcome(self) -> Counter[str]:
        """Outcome that is not final -> number of buyers whose last request had this outcome.

        Buyers who send one request only (buyers_without_retry) do not count.
        """
        return Counter(
            request.outcome
            for key, request in self.last_requests.items()
            if request.outcome not in FINAL_OUTCOMES and key not in self.buyers_without_retry
        )

    @property
    def never_answered(self) -> int:
        """Number of buyers who sent requests and got no final answer.

        Buyers who send one request only (buyers_without_retry) do not count.
        """
        return self.buyers_by_unfinished_outcome.total()

    @property
    def verdict(self) -> str:
        """The verdict: exact, oversold, undersold, deadlock or unknown."""
        verdict, _ = self._conclusion
        return verdict

    @property
    def why(self) -> str:
        """The reason for the verdict `unknown` and advice; empty if the verdict is another one."""
        _, reason = self._conclusion
        return reason

    @cached_property
    def _conclusion(self) -> tuple[str, str]:
        """The verdict, and the reason if it is `unknown`."""
        if self.oversold:
            return "oversold", ""
        if not self.fault_fired or self._find_fault_events("prove", "fail"):
            return "unknown", "there is no proof that the fault happened"
        for finding in self.findings:
            if finding.voids_record:
                return "unknown", finding.description
        if self._is_deadlocked():
            return "deadlock", ""
        if reason := self._explain_inconclusive_sale():
            return "unknown", reason
        if self.undersold:
            return "undersold", ""
        # The totals are right. But a finding may show that they are right by luck only.
        for finding in self.findings:
            if finding.prevents_exact:
                return "unknown", finding.description
        return "exact", ""

    def as_judged(self) -> Judged:
        """Return the fields of a run in `summary.json` that the judge decides."""
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
            "findings": [finding.description for finding in self.findings],
            "verdict": self.verdict,
            "why": self.why,
        }

    def _is_deadlocked(self) -> bool:
        """Return whether no buyer could buy for DEADLOCK_AFTER_TTLS ttls although stock was left.

        This period begins when the fault is undone. If a purchase was made after that, the period
        begins at the last purchase, because the last buyer may have left a lock that never expires.
        """
        heal_events = self._find_fault_events("heal", "ok")  # the end of the fault
        has_units_left = self.stock_left > 0 or len(self.orders) < self.initial_stock
        if self.ttl is None or not heal_events or not has_units_left:
            return False
        last_progress_at = max([heal_events[-1]["t"]] + self._list_purchase_times())
        requests = [request for request in self.requests if request.last_seen_at > last_progress_at]
        # A buyer who is answered `sold_out` was not blocked by a lock.
        if not requests or any(request.outcome == "sold_out" for request in requests):
            return False
        begin = max(last_progress_at, min(request.sent_at for request in requests))
        end = max(request.last_seen_at for request in requests)
        return end - begin >= DEADLOCK_AFTER_TTLS * self.ttl * 1e9

    def _list_purchase_times(self) -> list[int]:
        """Return the time of each purchase's answer, or of its request if it has no answer.

        A request whose effect is unknown (`info`) is a purchase if its buyer has an order.
        """
        return [
            request.last_seen_at
            for request in self.requests
            if request.type == "ok"
            or (request.type == "info" and request.attempt in self.order_numbers_by_key)
        ]

    def _explain_inconclusive_sale(self) -> str:
        """Return why the sale is inconclusive; empty if it is conclusive."""
        if not self.last_requests:
            return "no buyer sent a request"
        if reason := self._describe_unserved_buyers():
            return reason
        if not self.orders and self.initial_stock > 0:
            return "no buyer bought a unit"
        return ""

    def _describe_unserved_buyers(self) -> str:
        """Return how many buyers got no final answer, why, and what to do about it.

        Empty if every buyer got a final answer.
        """
        clauses = []
        if self.never_arrived:
            buyers = format_count(self.never_arrived, "buyer")
            clauses.append(f"{buyers} never became ready to buy")
        if self.never_asked:
            clauses.append(f"{format_count(self.never_asked, 'buyer')} sent no request")
        counts = self.buyers_by_unfinished_outcome.most_common()
        if counts:
            outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts)
            buyers = format_count(self.never_answered, "buyer")
            clauses.append(f"{buyers} got no final answer ({outcomes})")
            commonest_outcome, _ = counts[0]
            if remedy := self._suggest_remedy(commonest_outcome):
                clauses.append(remedy)
        return "; ".join(clauses)

    def _suggest_remedy(self, outcome: str) -> str:
        """Return what to do about buyers with this last outcome; empty if nothing is known.

        For `error`, return the last message of the shop instead.
        """
        if outcome == "error":
            errors = [request.error for request in self.requests if request.outcome == "error"]
            return f"the shop's error was: {errors[-1]}" if errors[-1] else ""
        remedies = REMEDIES if self.is_own_shop else FOREIGN_SHOP_REMEDIES
        return remedies.get(outcome, "")

    def _find_fault_events(self, phase: str, type: str) -> list[Event]:
        """Return the faults' events that have this phase and this type."""
        return [
            event
            for event in self.events
            if event["by"] == "fault" and event.get("phase") == phase and event["type"] == type
        ]
