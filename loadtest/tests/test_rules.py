"""Each rule of the judge on orders, answers and locks finds its violation, and no other.

Most tests change sequential_sale(), an exact sale of two units: the buyers victim and rival-1 buy
the orders 31 and 32, and rival-2 is answered `sold_out`.
"""

from typing import Any

import pytest

from loadtest.judge.verdict import Judgement
from loadtest.tests.history_builder import HistoryBuilder, require_only_finding, sequential_sale
from loadtest.tests.recorded_rush import RecordedRush


def test_orders_are_compared_with_the_stock() -> None:
    """Both units of a sale are ordered, but the stock at the end is 1 or -1 instead of 0."""
    sale = sequential_sale()
    finding = require_only_finding(sale.judge(stock_left=1), "lost_update")
    assert finding.description == "2 orders took 1 unit: 1 decrement was erased"
    finding = require_only_finding(sale.judge(stock_left=-1), "lost_update")
    assert finding.description == "2 orders took 3 units: 1 unit left the stock without an order"
    assert sale.judge(stock_left=1).verdict == "unknown"


def test_missing_acknowledged_order_is_a_lost_ack() -> None:
    """A lost_ack is an answer `sold` without an order. rival-3 is answered with order 33.

    There is no order 33. Later rival-3 sends another request and is answered `sold_out`.
    """
    sale = sequential_sale()
    sale.request(60, "rival-3")
    sale.answer(61, "rival-3", "sold", 33)
    sale.request(62, "rival-3")
    sale.answer(63, "rival-3", "sold_out")
    finding = require_only_finding(sale.judge(), "lost_ack")
    assert finding.description == "rival-3 was answered with order 33; no such order exists"
    assert finding.attempts == ("rival-3",)


def test_acknowledged_order_without_a_buyer_is_not_called_missing() -> None:
    """The order of the victim exists, but its field `key`, the key of the buyer, is empty."""
    sale = sequential_sale()
    sale.orders[0]["key"] = ""
    descriptions = [finding.description for finding in sale.judge().findings]
    assert "victim was answered with order 31; that order has no buyer's key" in descriptions


def test_sold_answer_without_a_number_is_a_lost_ack() -> None:
    """rival-1, which has order 32, repeats its request. The second answer has no order number.

    So this answer does not acknowledge the order.
    """
    sale = sequential_sale()
    sale.request(60, "rival-1")
    sale.answer(61, "rival-1", "sold")
    finding = require_only_finding(sale.judge(), "lost_ack")
    assert finding.description == "rival-1 was answered sold, without a number; it has order 32"


def make_sale_with_sold_out_at(ms: float) -> HistoryBuilder:
    """Return a sale in which rival-3 is answered sold_out at `ms`.

    The buyers of the two units read the stock at 3 and 23 ms. A unit may be sold as soon as its
    buyer has read the stock. So a `sold_out` before 23 ms is certainly wrong.
    """
    sale = sequential_sale()
    sale.request(ms - 1, "rival-3")
    sale.answer(ms, "rival-3", "sold_out")
    return sale


def test_sold_out_before_the_last_unit_can_be_sold_is_found() -> None:
    """The buyer of the last unit reads the stock at 23 ms. Until then the unit cannot be sold."""
    assert make_sale_with_sold_out_at(23.1).judge().violations == ()
    finding = require_only_finding(make_sale_with_sold_out_at(22.9).judge(), "false_sold_out")
    assert (
        finding.description
        == "rival-3 was answered sold_out when at most 1 of 2 units had been sold"
    )
    assert finding.attempts == ("rival-3",)
    assert make_sale_with_sold_out_at(22.9).judge().verdict == "unknown"


def judge_order_with_answers(*outcomes: str) -> Judgement:
    """Judge a sale in which rival-1 has an order, number 31.

    outcomes  the outcome of rival-1's first request, its second, ...; "" for one without an answer
    """
    sale = HistoryBuilder(stock=1)
    sale.commit(5, "rival-1", 1)
    for number, outcome in enumerate(outcomes):
        sale.request(10 * number, "rival-1")
        if outcome:
            sale.answer(10 * number + 9, "rival-1", outcome)
    return sale.judge()


def test_order_of_a_buyer_who_was_always_refused_is_found() -> None:
    """rival-1 is refused twice. Each of these outcomes means that nothing was sold.

    But rival-1 has an order, so one of the refusals is false.
    """
    for outcome in ("busy", "lost", "full", "unavailable", "throttled", "error"):
        judgement = judge_order_with_answers("busy", outcome)
        assert require_only_finding(judgement, "false_refusal").attempts == ("rival-1",)
        assert judgement.verdict == "unknown"


def test_replay_without_an_earlier_sale_is_a_false_refusal() -> None:
    """A replay is an answer `sold` with the order of an earlier request of the same buyer.

    In the first history rival-1 sent no earlier request. In the second history its earlier request
    was refused. In both cases no request can have made the order.
    """
    sale = sequential_sale()
    for event in sale.events:
        if event["by"] == "buyer" and event.get("order") == 32:
            event["replayed"] = True
    finding = require_only_finding(sale.judge(), "false_refusal")
    assert finding.description == "rival-1's first answer was a replay of an earlier order"
    sale.request(15, "rival-1")
    sale.answer(16, "rival-1", "busy")
    finding = require_only_finding(sale.judge(), "false_refusal")
    assert finding.description == (
        "rival-1 was refused each time, and then answered with an earlier order"
    )


def test_buyer_with_an_unanswered_request_may_have_an_order() -> None:
    """A request without an answer, or with the answer `unknown`, may have bought a unit.

    The judge finds the order by the buyer's key, and lists it in `recovered_orders`.
    """
    for outcomes in (("unknown", "busy"), ("busy", "unknown"), ("",), ("", "lost")):
        judgement = judge_order_with_answers(*outcomes)
        assert (judgement.verdict, judgement.violations) == ("unknown", ())  # no final answer
        assert judgement.recovered_orders == {"rival-1": 31}


def test_sold_out_is_right_after_the_last_unit_is_reserved() -> None:
    """Another buyer is answered `sold_out` at 22.9 ms. rival-1 buys the last unit.

    If the sale has no reservations, that unit is still for sale when the other buyer is answered,
    because rival-1 reads the stock at 23 ms. In the second history rival-1 has reserved the unit at
    22.5 ms, so `sold_out` is right.
    """
    sale = make_sale_with_sold_out_at(22.9)
    assert sale.judge().violations == ("false_sold_out",)
    sale.record(22.5, "rival-1", "reserve")
    assert sale.judge().violations == ()


@pytest.mark.parametrize("event_type", ["fail", "info", "OK"])
def test_answer_whose_type_contradicts_its_outcome_is_found(event_type: str) -> None:
    """An answer `sold` must have the type `ok`.

    The other rules look at the type only. So they would not notice that order 99 does not exist.
    """
    sale = sequential_sale()
    sale.request(60, "rival-3")
    sale.answer(61, "rival-3", "sold", 99)
    event: Any = sale.events[-1]
    event["type"] = event_type
    judgement = sale.judge()
    assert (judgement.verdict, judgement.violations) == ("unknown", ("wrong_answer",))
    assert judgement.why == f"rival-3's answer sold has the type {event_type} instead of ok"


def test_second_answer_to_one_request_is_found() -> None:
    """rival-2 sent one request, was answered `sold_out`, and is answered again: `sold`."""
    sale = sequential_sale()
    sale.answer(60, "rival-2", "sold", 99)
    judgement = sale.judge()
    assert (judgement.verdict, judgement.violations) == ("unknown", ("wrong_answer",))
    assert judgement.why == "rival-2 was answered sold, but had no open request"


def test_answer_error_may_have_the_type_info() -> None:
    """The type `info` means that the purchase may or may not have succeeded.

    Usually `error` has the type `fail`: nothing was sold.
    """
    sale = sequential_sale()
    sale.request(60, "rival-3")
    sale.answer(61, "rival-3", "error")
    event: Any = sale.events[-1]
    event["type"] = "info"
    assert sale.judge().violations == ()


# --- locks ----------------------------------------------------------------------------------------


def test_order_without_a_higher_fence_is_found() -> None:
    """Order 32 was written after order 31, but with the same fence instead of a higher one.

    The storage should have refused it.
    """
    sale = sequential_sale()
    sale.orders[1]["fence"] = 1
    finding = require_only_finding(sale.judge(), "fence_fell")
    assert finding.description == "order 32 was accepted with fence 1 after order 31 with fence 1"
    assert finding.attempts == ("victim", "rival-1")
    assert sale.judge().verdict == "unknown"


def make_sale_with_second_grant(requested_ms: float, fence: int) -> HistoryBuilder:
    """Return a sale in which rival-2 gets the lock with fence 5, and then the victim with `fence`.

    rival-2 requests the lock at 101 ms, gets it at 102 ms and releases it at 110 ms.

    requested_ms  the time at which the victim requests the lock, which it gets at 120 ms
    """
    sale = sequential_sale()
    sale.acquire(101, 102, "rival-2", fence=5)
    sale.release(110, "rival-2")
    sale.acquire(requested_ms, 120, "victim", fence=fence)
    sale.release(121, "victim")
    return sale


@pytest.mark.parametrize(
    ("requested_ms", "fence", "violations"),
    [
        (111, 6, ()),
        (111, 4, ("fence_fell",)),
        (101.5, 4, ()),  # both were requested before the first grant: either may come first
        (101.5, 5, ("fence_fell",)),  # two grants with one fence are wrong in either sequence
    ],
)
def test_grant_with_a_lower_fence_is_found(
    requested_ms: float, fence: int, violations: tuple[str, ...]
) -> None:
    """The first grant of the lock, at 102 ms, has fence 5.

    The second grant was requested at `requested_ms`, and has the fence `fence`.

    The sale stays exact, because the database may have refused the lower fence.
    """
    judgement = make_sale_with_second_grant(requested_ms, fence).judge()
    assert (judgement.verdict, judgement.violations) == ("exact", violations)


def test_fence_is_compared_with_the_highest_earlier_fence() -> None:
    """rival-2 gets fence 9, then the victim gets 5, and then rival-1 gets 7.

    The victim's fence may be lower than 9, because both requested the lock before the first grant.
    But rival-1 requested the lock after both grants, so its fence must be higher than 9.
    """
    sale = sequential_sale()
    sale.acquire(100, 102, "rival-2", fence=9)
    sale.acquire(101, 110, "victim", fence=5)
    sale.acquire(200, 201, "rival-1", fence=7)
    assert require_only_finding(sale.judge(), "fence_fell").attempts == ("rival-2", "rival-1")


def make_sale_with_two_holders(second_grant_ms: float) -> HistoryBuilder:
    """Return a sale in which the victim has the lock from 102 to 110 ms.

    rival-2 has the lock from `second_grant_ms` to 130 ms.
    """
    sale = sequential_sale()
    sale.acquire(101, 102, "victim")
    sale.release(110, "victim", "expired")
    sale.acquire(101, second_grant_ms, "rival-2")
    sale.release(130, "rival-2")
    return sale


def test_overlap_is_found_and_the_sale_stays_exact() -> None:
    """The victim has the lock until 110 ms, when its release begins.

    The rival gets the lock at 110 ms, which is right, or at 108 ms. Without lost updates an overlap
    does not change the verdict `exact`, because a fault may have taken the lock from its holder.
    """
    assert make_sale_with_two_holders(110).judge().violations == ()
    finding = require_only_finding(make_sale_with_two_holders(108).judge(), "overlap")
    assert finding.description == "victim and rival-2 held the lock together for 2.0 ms"
    assert finding.attempts == ("victim", "rival-2")
    assert make_sale_with_two_holders(108).judge().verdict == "exact"


def test_reentry_counts_as_one_holder() -> None:
    """One thread acquires a reentrant lock twice, so both grants have the same token."""
    sale = sequential_sale()
    for key, ms in {"victim": 102.0, "rival-1": 104.0}.items():
        sale.record(ms, key, "acquired", token="thread 3 of process 12", fence=None)
    for key in ("victim", "rival-1"):
        sale.release(110, key)
    assert sale.judge().violations == ()


# --- two holders under a fault -------------------------------------------------------------------


def judge_two_holders(first_holder: str, *, buyer_hit_by_fault: str) -> Judgement:
    """Judge a sale in which `first_holder` and rival-2 have the lock at the same time.

    buyer_hit_by_fault  the buyer from whom a fault took the lock
    """
    sale = sequential_sale()
    sale.acquire(101, 102, first_holder, fence=5)
    sale.acquire(103, 105, "rival-2", fence=6)
    sale.release(110, first_holder, "expired")
    sale.release(130, "rival-2")
    return sale.judge(buyers_hit_by_fault=frozenset({buyer_hit_by_fault}))


def test_two_holders_are_allowed_if_a_fault_took_the_lock_from_one() -> None:
    """A fault took the lock from the victim.

    In the first sale the victim is one of the two holders, so the overlap is no error of the lock.
    In the second sale both holders are other buyers.
    """
    assert judge_two_holders("victim", buyer_hit_by_fault="victim").verdict == "exact"
    judgement = judge_two_holders("rival-1", buyer_hit_by_fault="victim")
    assert (judgement.verdict, judgement.violations) == ("unknown", ("overlap",))


def judge_late_release(outcome: str, buyers_hit_by_fault: frozenset[str] | None) -> Judgement:
    """Judge a rush in which buyer 0 releases its lock, which has expired, while buyer 1 has it.

    outcome              the outcome of that release
    buyers_hit_by_fault  the buyers from whom a fault took the lock; None if it may have been any
                         buyer
    """
    rush = RecordedRush("redis")
    released_ns = 26_000_000  # buyer 1 has the lock from 25 ms on
    rush.change_node_events("release", 0, t=released_ns)
    rush.change_node_events("released", 0, t=released_ns, outcome=outcome)
    rush.change_sold_answers("buyer-0", t=released_ns + 3_000_000, released=outcome)
    return rush.judge(undisturbed=False, buyers_hit_by_fault=buyers_hit_by_fault)


def test_release_that_succeeds_after_another_grant_is_found() -> None:
    """A fault took the lock from buyer 0, which releases it while buyer 1 has it.

    The outcome must be `expired`. If the release succeeds, it takes the lock from buyer 1.
    """
    assert judge_late_release("expired", frozenset({"buyer-0"})).verdict == "exact"
    judgement = judge_late_release("released", frozenset({"buyer-0"}))
    assert (judgement.verdict, judgement.violations) == ("unknown", ("overlap", "false_release"))


def test_late_release_may_succeed_if_two_servers_grant_the_lock() -> None:
    """After a split brain two servers may each have granted the lock, so both releases are right.

    Then `buyers_hit_by_fault` is None: the fault may have taken the lock from any buyer.
    """
    assert judge_late_release("released", None).verdict == "exact"
