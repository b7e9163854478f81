"""Random sales: a correct one breaks no rule, and a violation planted in it is found."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from loadtest.tests.correct_shop import CorrectShop
from loadtest.tests.happenings import Happenings

#: Threads left behind by earlier tests may use `random` too, which Hypothesis takes for ours.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")

quick = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=list(HealthCheck),  # they measure the machine, not the judge
)
seeds = st.integers(0, 2**32)


@st.composite
def sales(draw: st.DrawFn, *, pauses: bool = False) -> Happenings:
    shop = CorrectShop(
        random=Random(draw(seeds)),
        stock=draw(st.integers(1, 6)),
        buyers=draw(st.integers(1, 12)),
        pauses=pauses,
    )
    return shop.run()


def expected(sale: Happenings) -> str:
    """Nobody bought, or somebody was left without a final answer: unknown. Else exact."""
    served = all(reply.outcome in {"sold", "sold_out"} for reply in sale.last.values())
    return "exact" if sale.orders and served else "unknown"


@quick
@given(sales())
def test_a_correct_shop_breaks_no_rule(sale: Happenings) -> None:
    judged = sale.judged()
    assert judged.findings == ()
    assert judged.verdict == expected(sale)
    acknowledged = {key for key, last in sale.last.items() if last.outcome == "sold"}
    assert judged.recovered == {
        order["key"]: order["order"] for order in sale.orders if order["key"] not in acknowledged
    }


@quick
@given(sales(pauses=True))
def test_a_fence_keeps_a_sale_exact_though_holds_overlap(sale: Happenings) -> None:
    judged = sale.judged()
    assert set(judged.violations) <= {"overlap"}
    assert judged.verdict == expected(sale)


def test_holders_that_were_paused_do_overlap() -> None:
    """Otherwise the test above would show nothing."""
    found = [CorrectShop(Random(n), 6, 12, pauses=True).run().judged() for n in range(20)]
    assert sum("overlap" in judged.violations for judged in found) > 10


# Each mutation plants one violation in a correct sale, and returns the rules that have to find it.


def write_over_a_decrement(sale: Happenings, random: Random) -> set[str]:
    """One order after the first was written over a stock read too early; the others followed it."""
    assume(len(sale.orders) > 1)
    late = sale.orders[random.randrange(1, len(sale.orders)) :]
    for order in late:
        order["stock_seen"] += 1
    keys = {order["key"] for order in late}
    for event in sale.events:
        if event["f"] == "after_read" and event["attempt"] in keys:
            event["amount"] += 1
    sale.shelf = sale.left() + 1
    return {"lost_update", "stale_write"}


def answer_somebody_sold_out_early(sale: Happenings, random: Random) -> set[str]:
    first_read: dict[str, int] = {}
    for commit in sale.history().commits:
        first_read.setdefault(commit.attempt, commit.read_at or commit.begun)
    last = max(first_read.values())
    sale.asks(-1, "early")
    sale.answered(random.random() * last / 1e6, "early", "sold_out")
    return {"false_sold_out"}


def release_late(sale: Happenings, random: Random) -> set[str]:
    """One holder releases late, while the next one holds the lock already."""
    grants = sale.history().holds
    last_of = {hold.attempt: hold for hold in grants}
    found = [
        (one, other)
        for one, other in pairwise(grants)
        if one.released and one is last_of[one.attempt] and other.end > other.start + 2
    ]
    assume(found)
    one, other = random.choice(found)
    for event in sale.events:
        if event["by"] == "node" and event["attempt"] == one.attempt and event["t"] >= one.end:
            event["t"] += other.start - one.end + 1
    return {"overlap"}


def grant_a_lower_fence(sale: Happenings, random: Random) -> set[str]:
    highest = max(hold.fence or 0 for hold in sale.history().holds)
    sale.acquires(LATE, LATE + 1, next(iter(sale.last)), random.randint(1, highest))
    return {"fence_fell"}


LATE = 10**6  # milliseconds: after everything else
SPOIL = [write_over_a_decrement, answer_somebody_sold_out_early]
DO_NOT_SPOIL = [release_late, grant_a_lower_fence]


@pytest.mark.parametrize("plant", [*SPOIL, *DO_NOT_SPOIL], ids=lambda plant: str(plant.__name__))
def test_what_is_planted_in_a_correct_sale_is_found(
    plant: Callable[[Happenings, Random], set[str]],
) -> None:
    @quick
    @given(sales(), seeds)
    def whatever_the_sale_was(sale: Happenings, seed: int) -> None:
        assume(sale.orders)
        before = sale.judged().verdict
        rules = plant(sale, Random(seed))
        judged = sale.judged()
        assert rules <= set(judged.violations)
        if plant in DO_NOT_SPOIL:
            assert judged.verdict == before
        else:
            assert judged.verdict != "exact"

    whatever_the_sale_was()
