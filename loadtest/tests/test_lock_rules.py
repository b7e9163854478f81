"""Each rule over locks and reads finds what is planted for it, and nothing without it."""

import pytest

from loadtest.judge.verdict import Judgement
from loadtest.tests.happenings import Happenings, one_after_the_other, only
from loadtest.tests.recorded import RecordedRush


def test_a_sale_whose_storage_accepted_a_stale_fence_is_not_exact() -> None:
    shop = one_after_the_other()
    shop.orders[1]["fence"] = 1
    finding = only(shop.judged(), "fence_fell")
    assert finding.what == "order 32 was accepted with fence 1 after order 31 with fence 1"
    assert finding.attempts == ("victim", "rival-1")
    assert shop.judged().verdict == "unknown"


def granted(asked: float, fence: int) -> Happenings:
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


def two_inside(second: float) -> Happenings:
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
    assert finding.what == "victim and rival-2 held the lock together for 2.0 ms"
    assert finding.attempts == ("victim", "rival-2")
    assert two_inside(8).judged().verdict == "exact"


def test_a_holder_that_enters_its_own_lock_again_is_one_holder() -> None:
    shop = one_after_the_other()
    for key, ms in {"victim": 102.0, "rival-1": 104.0}.items():
        shop.at(ms, key, "acquired", token="thread 3 of process 12", fence=None)
    for key in ("victim", "rival-1"):
        shop.releases(110, key)
    assert shop.judged().violations == ()


def test_an_order_written_over_another_ones_decrement_is_a_stale_write() -> None:
    """victim and rival-1 read 10; the victim commits, then rival-1."""
    shop = Happenings(stock=10)
    for key in ("victim", "rival-1"):
        shop.asks(0, key)
        shop.reads(3, key, 10)
    for key, ms in {"victim": 4, "rival-1": 6}.items():
        shop.answered(ms + 4, key, "sold", shop.commits(ms, key, 10))
    judged = shop.judged(left=9)
    assert judged.violations == ("lost_update", "stale_write")
    assert judged.findings[1].attempts == ("rival-1", "victim")
    assert "order 32" in judged.findings[1].what
    assert "commit of 31" in judged.findings[1].what


# --- who may hold the lock together under a fault ------------------------------------------------


def two_under_a_fault(first: str, *, robbed: str) -> Judgement:
    """`first` is granted the lock, and rival-2 while it holds it; that of `robbed` was taken."""
    shop = one_after_the_other()
    shop.acquires(101, 102, first, 5)
    shop.acquires(103, 105, "rival-2", 6)
    shop.releases(110, first, "expired")
    shop.releases(130, "rival-2")
    return shop.judged(asked={"robbed": frozenset({robbed})})


def test_only_whose_lock_was_taken_away_may_hold_it_beside_somebody_else() -> None:
    assert two_under_a_fault("victim", robbed="victim").verdict == "exact"
    judged = two_under_a_fault("rival-1", robbed="victim")
    assert (judged.verdict, judged.violations) == ("unknown", ("overlap",))


def recorded_under_a_fault(outcome: str) -> Judgement:
    """Buyer 0 sold, was paused past its lease, and let go when buyer 1 was inside."""
    rush = RecordedRush("redis")
    a_later_release(rush)
    rush.events("released", 0)[0]["outcome"] = outcome
    return rush.judged({"undisturbed": False, "robbed": frozenset({"buyer-0"})})


def test_a_release_that_is_confirmed_after_another_grant_gives_the_lock_of_another_away() -> None:
    assert recorded_under_a_fault("expired").verdict == "exact"
    judged = recorded_under_a_fault("released")
    assert (judged.verdict, judged.violations) == ("unknown", ("overlap", "false_release"))


def test_where_two_servers_grant_the_lock_each_release_may_be_right() -> None:
    rush = RecordedRush("redis")
    a_later_release(rush)
    assert rush.judged({"undisturbed": False, "robbed": None}).verdict == "exact"


def a_later_release(rush: RecordedRush) -> None:
    for kind in ("release", "released"):
        rush.events(kind, 0)[0]["t"] = round(26e6)
    for event in rush.happened.events:
        if event["by"] == "buyer" and event["attempt"] == "buyer-0" and event["type"] == "ok":
            event["t"] = round(29e6)
