"""Each rule over orders, answers, locks and reads finds what is planted for it, and nothing without
it."""

import pytest

from loadtest.judge.verdict import Judgement
from loadtest.tests.history_builder import HistoryBuilder, one_after_the_other, only
from loadtest.tests.recorded_rush import RecordedRush


def test_orders_are_compared_with_the_shelf() -> None:
    shop = one_after_the_other()
    erased = only(shop.judged(left=1), "lost_update")
    assert erased.description == "2 orders took 1 unit: 1 decrement was erased"
    gone = only(shop.judged(left=-1), "lost_update")
    assert gone.description == "2 orders took 3 units: 1 unit went without an order"
    assert shop.judged(left=1).verdict == "unknown"


def test_an_acknowledged_order_that_went_is_a_lost_ack_though_the_last_answer_was_another() -> None:
    shop = one_after_the_other()
    shop.asks(60, "rival-3")
    shop.answered(61, "rival-3", "sold", 33)
    shop.asks(62, "rival-3")
    shop.answered(63, "rival-3", "sold_out")
    finding = only(shop.judged(), "lost_ack")
    assert finding.description == "rival-3 was answered with order 33; there is none"
    assert finding.attempts == ("rival-3",)


def sold_out_at(ms: float) -> HistoryBuilder:
    """rival-3 is answered sold_out; victim and rival-1 read for the two units at 3 and 23 ms."""
    shop = one_after_the_other()
    shop.asks(ms - 1, "rival-3")
    shop.answered(ms, "rival-3", "sold_out")
    return shop


def test_sold_out_before_the_last_unit_could_have_gone_is_false() -> None:
    assert sold_out_at(23.1).judged().violations == ()
    finding = only(sold_out_at(22.9).judged(), "false_sold_out")
    assert finding.description == "rival-3 was answered sold_out when at most 1 of 2 units had gone"
    assert finding.attempts == ("rival-3",)
    assert sold_out_at(22.9).judged().verdict == "unknown"


def refused_and_sold(*answers: str) -> Judgement:
    """rival-1 has an order, and got these answers, one request after the other."""
    shop = HistoryBuilder(stock=1)
    shop.commits(5, "rival-1", 1)
    for number, outcome in enumerate(answers):
        shop.asks(10 * number, "rival-1")
        if outcome:
            shop.answered(10 * number + 9, "rival-1", outcome)
    return shop.judged()


def test_a_refused_buyer_with_an_order_is_a_false_refusal() -> None:
    for outcome in ("busy", "lost", "full", "unavailable", "throttled", "error"):
        judged = refused_and_sold("busy", outcome)
        assert only(judged, "false_refusal").attempts == ("rival-1",)
        assert judged.verdict == "unknown"


def test_a_buyer_whose_answer_was_left_open_once_may_have_an_order() -> None:
    for answers in (("unknown", "busy"), ("busy", "unknown"), ("",), ("", "lost")):
        judged = refused_and_sold(*answers)
        assert (judged.verdict, judged.violations) == ("unknown", ())  # no final answer
        assert judged.recovered_orders == {"rival-1": 31}


def test_a_unit_that_a_counter_gave_away_is_gone_before_its_node_read_anything() -> None:
    shop = sold_out_at(22.9)
    assert shop.judged().violations == ("false_sold_out",)
    shop.at(22.5, "rival-1", "reserve")
    assert shop.judged().violations == ()


# --- locks and reads ------------------------------------------------------------------------------


def test_a_sale_whose_storage_accepted_a_stale_fence_is_not_exact() -> None:
    shop = one_after_the_other()
    shop.orders[1]["fence"] = 1
    finding = only(shop.judged(), "fence_fell")
    assert finding.description == "order 32 was accepted with fence 1 after order 31 with fence 1"
    assert finding.attempts == ("victim", "rival-1")
    assert shop.judged().verdict == "unknown"


def granted(asked: float, fence: int) -> HistoryBuilder:
    """A grant of fence 5 is there from 2 to 10 ms; another is asked for, and there at 20 ms."""
    shop = one_after_the_other()
    shop.acquires(101, 102, "rival-2", 5)
    shop.releases(110, "rival-2")
    shop.acquires(100 + asked, 120, "victim", fence)
    shop.releases(121, "victim")
    return shop


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
    judged = granted(asked, fence).judged()
    assert (judged.verdict, judged.violations) == ("exact", violations)


def test_a_fence_is_compared_with_the_highest_before_it_not_the_last() -> None:
    """9, then 5, which was asked for at the same time, then 7: that is too low."""
    shop = one_after_the_other()
    shop.acquires(100, 102, "rival-2", 9)
    shop.acquires(101, 110, "victim", 5)
    shop.acquires(200, 201, "rival-1", 7)
    assert only(shop.judged(), "fence_fell").attempts == ("rival-2", "rival-1")


def two_inside(second: float) -> HistoryBuilder:
    """The victim has the lock from 2 to 10 ms, and at `second` a rival has it as well."""
    shop = one_after_the_other()
    shop.acquires(101, 102, "victim")
    shop.releases(110, "victim", "expired")
    shop.acquires(101, 100 + second, "rival-2")
    shop.releases(130, "rival-2")
    return shop


def test_holds_that_overlap_are_found_and_the_sale_stays_exact() -> None:
    assert two_inside(10).judged().violations == ()  # a hold ends where its release begins
    finding = only(two_inside(8).judged(), "overlap")
    assert finding.description == "victim and rival-2 held the lock together for 2.0 ms"
    assert finding.attempts == ("victim", "rival-2")
    assert two_inside(8).judged().verdict == "exact"


def test_a_holder_that_enters_its_own_lock_again_is_one_holder() -> None:
    shop = one_after_the_other()
    for key, ms in {"victim": 102.0, "rival-1": 104.0}.items():
        shop.at(ms, key, "acquired", token="thread 3 of process 12", fence=None)
    for key in ("victim", "rival-1"):
        shop.releases(110, key)
    assert shop.judged().violations == ()


# --- who may hold the lock together under a fault ------------------------------------------------


def two_under_a_fault(first: str, *, robbed: str) -> Judgement:
    """`first` is granted the lock, and rival-2 while it holds it; that of `robbed` was taken."""
    shop = one_after_the_other()
    shop.acquires(101, 102, first, 5)
    shop.acquires(103, 105, "rival-2", 6)
    shop.releases(110, first, "expired")
    shop.releases(130, "rival-2")
    return shop.judged(robbed_buyers=frozenset({robbed}))


def test_only_whose_lock_was_taken_away_may_hold_it_beside_somebody_else() -> None:
    assert two_under_a_fault("victim", robbed="victim").verdict == "exact"
    judged = two_under_a_fault("rival-1", robbed="victim")
    assert (judged.verdict, judged.violations) == ("unknown", ("overlap",))


def recorded_under_a_fault(outcome: str, robbed: frozenset[str] | None) -> Judgement:
    """Buyer 0 sold, was paused past its lease, and let go when buyer 1 was inside."""
    rush = RecordedRush("redis")
    for kind in ("release", "released"):
        rush.events(kind, 0)[0]["t"] = round(26e6)
    for event in rush.happened.events:
        if event["by"] == "buyer" and event["attempt"] == "buyer-0" and event["type"] == "ok":
            event["t"] = round(29e6)
    rush.events("released", 0)[0]["outcome"] = outcome
    rush.change_answers("buyer-0", released=outcome)
    return rush.judged(undisturbed=False, robbed_buyers=robbed)


def test_a_release_that_is_confirmed_after_another_grant_gives_the_lock_of_another_away() -> None:
    assert recorded_under_a_fault("expired", frozenset({"buyer-0"})).verdict == "exact"
    judged = recorded_under_a_fault("released", frozenset({"buyer-0"}))
    assert (judged.verdict, judged.violations) == ("unknown", ("overlap", "false_release"))


def test_where_two_servers_grant_the_lock_each_release_may_be_right() -> None:
    assert recorded_under_a_fault("released", None).verdict == "exact"
