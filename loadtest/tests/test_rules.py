"""Each rule over orders, answers, locks and reads finds what is planted for it, and nothing without
it."""

import pytest

from loadtest.judge.verdict import Judgement
from loadtest.tests.history_builder import HistoryBuilder, only_finding, sequential_sale
from loadtest.tests.recorded_rush import RecordedRush


def test_orders_are_compared_with_the_shelf() -> None:
    sale = sequential_sale()
    erased = only_finding(sale.judge(left=1), "lost_update")
    assert erased.description == "2 orders took 1 unit: 1 decrement was erased"
    gone = only_finding(sale.judge(left=-1), "lost_update")
    assert gone.description == "2 orders took 3 units: 1 unit went without an order"
    assert sale.judge(left=1).verdict == "unknown"


def test_an_acknowledged_order_that_went_is_a_lost_ack_though_the_last_answer_was_another() -> None:
    sale = sequential_sale()
    sale.ask(60, "rival-3")
    sale.answer(61, "rival-3", "sold", 33)
    sale.ask(62, "rival-3")
    sale.answer(63, "rival-3", "sold_out")
    finding = only_finding(sale.judge(), "lost_ack")
    assert finding.description == "rival-3 was answered with order 33; there is none"
    assert finding.attempts == ("rival-3",)


def sold_out_at(ms: float) -> HistoryBuilder:
    """rival-3 is answered sold_out; victim and rival-1 read for the two units at 3 and 23 ms."""
    sale = sequential_sale()
    sale.ask(ms - 1, "rival-3")
    sale.answer(ms, "rival-3", "sold_out")
    return sale


def test_sold_out_before_the_last_unit_could_have_gone_is_false() -> None:
    assert sold_out_at(23.1).judge().violations == ()
    finding = only_finding(sold_out_at(22.9).judge(), "false_sold_out")
    assert finding.description == "rival-3 was answered sold_out when at most 1 of 2 units had gone"
    assert finding.attempts == ("rival-3",)
    assert sold_out_at(22.9).judge().verdict == "unknown"


def refused_and_sold(*answers: str) -> Judgement:
    """rival-1 has an order, and got these answers, one request after the other."""
    sale = HistoryBuilder(stock=1)
    sale.commit(5, "rival-1", 1)
    for number, outcome in enumerate(answers):
        sale.ask(10 * number, "rival-1")
        if outcome:
            sale.answer(10 * number + 9, "rival-1", outcome)
    return sale.judge()


def test_a_refused_buyer_with_an_order_is_a_false_refusal() -> None:
    for outcome in ("busy", "lost", "full", "unavailable", "throttled", "error"):
        judgement = refused_and_sold("busy", outcome)
        assert only_finding(judgement, "false_refusal").attempts == ("rival-1",)
        assert judgement.verdict == "unknown"


def test_a_buyer_whose_answer_was_left_open_once_may_have_an_order() -> None:
    for answers in (("unknown", "busy"), ("busy", "unknown"), ("",), ("", "lost")):
        judgement = refused_and_sold(*answers)
        assert (judgement.verdict, judgement.violations) == ("unknown", ())  # no final answer
        assert judgement.recovered_orders == {"rival-1": 31}


def test_a_unit_that_a_counter_gave_away_is_gone_before_its_node_read_anything() -> None:
    sale = sold_out_at(22.9)
    assert sale.judge().violations == ("false_sold_out",)
    sale.record(22.5, "rival-1", "reserve")
    assert sale.judge().violations == ()


# --- locks and reads ------------------------------------------------------------------------------


def test_a_sale_whose_storage_accepted_a_stale_fence_is_not_exact() -> None:
    sale = sequential_sale()
    sale.orders[1]["fence"] = 1
    finding = only_finding(sale.judge(), "fence_fell")
    assert finding.description == "order 32 was accepted with fence 1 after order 31 with fence 1"
    assert finding.attempts == ("victim", "rival-1")
    assert sale.judge().verdict == "unknown"


def granted(asked: float, fence: int) -> HistoryBuilder:
    """A grant of fence 5 is there from 2 to 10 ms; another is asked for, and there at 20 ms."""
    sale = sequential_sale()
    sale.acquire(101, 102, "rival-2", 5)
    sale.release(110, "rival-2")
    sale.acquire(100 + asked, 120, "victim", fence)
    sale.release(121, "victim")
    return sale


@pytest.mark.parametrize(
    ("asked", "fence", "violations"),
    [
        (11, 6, ()),
        (11, 4, ("fence_fell",)),
        (1.5, 4, ()),  # of two that were asked for at once either may be the first
        (1.5, 5, ("fence_fell",)),  # one fence for two grants is wrong in any order
    ],
)
def test_a_grant_with_a_lower_fence_is_found_and_the_sale_stays_exact(
    asked: float, fence: int, violations: tuple[str, ...]
) -> None:
    judgement = granted(asked, fence).judge()
    assert (judgement.verdict, judgement.violations) == ("exact", violations)


def test_a_fence_is_compared_with_the_highest_before_it_not_the_last() -> None:
    """9, then 5, which was asked for at the same time, then 7: that is too low."""
    sale = sequential_sale()
    sale.acquire(100, 102, "rival-2", 9)
    sale.acquire(101, 110, "victim", 5)
    sale.acquire(200, 201, "rival-1", 7)
    assert only_finding(sale.judge(), "fence_fell").attempts == ("rival-2", "rival-1")


def two_inside(second: float) -> HistoryBuilder:
    """The victim has the lock from 2 to 10 ms, and at `second` a rival has it as well."""
    sale = sequential_sale()
    sale.acquire(101, 102, "victim")
    sale.release(110, "victim", "expired")
    sale.acquire(101, 100 + second, "rival-2")
    sale.release(130, "rival-2")
    return sale


def test_holds_that_overlap_are_found_and_the_sale_stays_exact() -> None:
    assert two_inside(10).judge().violations == ()  # a hold ends where its release begins
    finding = only_finding(two_inside(8).judge(), "overlap")
    assert finding.description == "victim and rival-2 held the lock together for 2.0 ms"
    assert finding.attempts == ("victim", "rival-2")
    assert two_inside(8).judge().verdict == "exact"


def test_a_holder_that_enters_its_own_lock_again_is_one_holder() -> None:
    sale = sequential_sale()
    for key, ms in {"victim": 102.0, "rival-1": 104.0}.items():
        sale.record(ms, key, "acquired", token="thread 3 of process 12", fence=None)
    for key in ("victim", "rival-1"):
        sale.release(110, key)
    assert sale.judge().violations == ()


# --- who may hold the lock together under a fault ------------------------------------------------


def two_under_a_fault(first: str, *, robbed: str) -> Judgement:
    """`first` is granted the lock, and rival-2 while it holds it; that of `robbed` was taken."""
    sale = sequential_sale()
    sale.acquire(101, 102, first, 5)
    sale.acquire(103, 105, "rival-2", 6)
    sale.release(110, first, "expired")
    sale.release(130, "rival-2")
    return sale.judge(robbed_buyers=frozenset({robbed}))


def test_only_whose_lock_was_taken_away_may_hold_it_beside_somebody_else() -> None:
    assert two_under_a_fault("victim", robbed="victim").verdict == "exact"
    judgement = two_under_a_fault("rival-1", robbed="victim")
    assert (judgement.verdict, judgement.violations) == ("unknown", ("overlap",))


def recorded_under_a_fault(outcome: str, robbed: frozenset[str] | None) -> Judgement:
    """Buyer 0 sold, was paused past its lease, and let go when buyer 1 was inside."""
    rush = RecordedRush("redis")
    for kind in ("release", "released"):
        rush.node_events(kind, 0)[0]["t"] = round(26e6)
    for event in rush.history.events:
        if event["by"] == "buyer" and event["attempt"] == "buyer-0" and event["type"] == "ok":
            event["t"] = round(29e6)
    rush.node_events("released", 0)[0]["outcome"] = outcome
    rush.change_sold_answers("buyer-0", released=outcome)
    return rush.judge(undisturbed=False, robbed_buyers=robbed)


def test_a_release_that_is_confirmed_after_another_grant_gives_the_lock_of_another_away() -> None:
    assert recorded_under_a_fault("expired", frozenset({"buyer-0"})).verdict == "exact"
    judgement = recorded_under_a_fault("released", frozenset({"buyer-0"}))
    assert (judgement.verdict, judgement.violations) == ("unknown", ("overlap", "false_release"))


def test_where_two_servers_grant_the_lock_each_release_may_be_right() -> None:
    assert recorded_under_a_fault("released", None).verdict == "exact"
