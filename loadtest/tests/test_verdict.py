"""Every rule of the judge finds what is planted for it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.judge.verdict import EXIT_CODES, Judgement, Reply, judge
from loadtest.tests.happenings import Happenings


def order(number: int, *, fence: int | None = None) -> dict[str, Any]:
    return {"order": number, "key": f"key-{number}", "fence": fence}


def sold(number: int) -> Reply:
    return Reply(f"key-{number}", "sold", number)


def refused(number: int, outcome: str = "sold_out") -> Reply:
    return Reply(f"key-{number}", outcome)


def exact_sale(**changes: Any) -> Judgement:
    """Two units, three buyers: two orders, one sold out. `changes` plants a violation."""
    sale: dict[str, Any] = {
        "initial_stock": 2,
        "stock_left": 0,
        "orders": [order(1, fence=10), order(2, fence=11)],
        "replies": [sold(1), sold(2), refused(3)],
    }
    return judge(**{**sale, **changes})


def test_an_exact_sale_is_exact() -> None:
    judged = exact_sale()
    assert (judged.verdict, judged.violations) == ("exact", ())
    assert (judged.orders, judged.oversold, judged.undersold, judged.lost_updates) == (2, 0, 0, 0)
    assert judged.outcomes["sold"] == 2
    assert judged.outcomes["sold_out"] == 1
    assert judged.outcomes["busy"] == 0


@pytest.mark.parametrize(
    ("unsettled", "why"),
    [
        (3, "3 promised orders are not written: is manage.py settle running?"),
        (None, "nobody knows how many promised orders are not written: is manage.py settle "),
    ],
)
def test_of_a_sale_with_promises_that_are_not_settled_nothing_is_concluded(
    unsettled: int | None, why: str
) -> None:
    judged = exact_sale(unsettled=unsettled)
    assert (judged.verdict, judged.violations) == ("unknown", ("unsettled",))
    assert judged.why.startswith(why)


def test_more_orders_than_units_are_oversold_though_stock_is_positive() -> None:
    judged = exact_sale(
        stock_left=1,
        orders=[order(1), order(2), order(3)],
        replies=[sold(1), sold(2), sold(3)],
    )
    assert (judged.verdict, judged.oversold, judged.lost_updates) == ("oversold", 1, 2)
    assert judged.violations == ("lost_update",)


def test_a_negative_stock_is_oversold_without_a_lost_update() -> None:
    judged = exact_sale(
        stock_left=-1, orders=[order(1), order(2), order(3)], replies=[sold(1), sold(2), sold(3)]
    )
    assert (judged.verdict, judged.oversold, judged.violations) == ("oversold", 1, ())


def test_units_refused_while_there_were_some_are_undersold() -> None:
    judged = exact_sale(stock_left=1, orders=[order(1)], replies=[sold(1), refused(2), refused(3)])
    assert (judged.verdict, judged.undersold) == ("undersold", 1)
    assert judged.violations == ("false_sold_out",)


def test_fewer_buyers_than_units_can_be_exact() -> None:
    judged = exact_sale(initial_stock=5, stock_left=3, replies=[sold(1), sold(2)])
    assert (judged.verdict, judged.undersold) == ("exact", 0)


def test_a_lost_update_that_no_buyer_met_is_not_called_exact() -> None:
    judged = exact_sale(initial_stock=5, stock_left=4, replies=[sold(1), sold(2)])
    assert (judged.verdict, judged.violations) == ("unknown", ("lost_update",))


def test_an_acknowledged_order_that_does_not_exist_is_a_lost_ack() -> None:
    judged = exact_sale(replies=[sold(1), sold(2), Reply("key-9", "sold", 9)])
    assert judged.violations == ("lost_ack",)
    assert judged.verdict == "oversold"  # three were promised one of two units
    assert [finding.attempts for finding in judged.findings] == [("key-9",)]


def test_an_acknowledgement_of_somebody_elses_order_is_a_lost_ack() -> None:
    judged = exact_sale(replies=[sold(1), Reply("key-2", "sold", 1), refused(3)])
    assert "lost_ack" in judged.violations


def test_a_buyer_answered_sold_out_who_has_an_order_is_a_false_sold_out() -> None:
    judged = exact_sale(replies=[sold(1), refused(2), refused(3)])
    assert judged.violations == ("false_sold_out",)


@pytest.mark.parametrize("fences", [(11, 10), (10, 10)])
def test_a_fence_that_does_not_rise_is_found(fences: tuple[int, int]) -> None:
    orders = [order(number, fence=fence) for number, fence in enumerate(fences, start=1)]
    assert exact_sale(orders=orders).violations == ("fence_fell",)


@pytest.mark.parametrize(
    "outcome", ["busy", "lost", "full", "unavailable", "throttled", "unknown", "error"]
)
def test_a_buyer_who_gave_up_while_stock_was_left_leaves_a_sale_unknown(outcome: str) -> None:
    judged = exact_sale(stock_left=1, orders=[order(1)], replies=[sold(1), refused(2, outcome)])
    assert judged.verdict == "unknown"
    assert judged.violations == ()
    assert judged.outcomes[outcome] == 1


@pytest.mark.parametrize("outcome", ["busy", "lost", "full", "unavailable", "throttled", "unknown"])
def test_a_unit_that_left_the_shelf_without_an_order_is_still_to_be_sold(outcome: str) -> None:
    judged = exact_sale(orders=[order(1)], replies=[sold(1), refused(2, outcome)])
    assert (judged.verdict, judged.violations) == ("unknown", ("lost_update",))


@pytest.mark.parametrize("outcome", ["busy", "lost", "full", "unavailable", "throttled", "unknown"])
def test_a_buyer_who_was_never_answered_that_all_is_gone_leaves_a_sale_unknown(
    outcome: str,
) -> None:
    judged = exact_sale(replies=[sold(1), sold(2), refused(3, outcome)])
    assert (judged.verdict, judged.never_answered) == ("unknown", 1)
    assert judged.why.startswith(f"1 had no final answer (1 {outcome})")


def test_an_error_leaves_open_what_the_sale_was() -> None:
    assert exact_sale(replies=[sold(1), sold(2), refused(3, "error")]).verdict == "unknown"


def test_an_order_whose_buyer_was_not_answered_is_recovered() -> None:
    judged = exact_sale(replies=[sold(1), refused(2, "unknown"), refused(3)])
    assert (judged.verdict, judged.violations) == ("unknown", ())  # it never had a final answer
    assert judged.recovered == {"key-2": 2}


def test_a_fault_that_did_not_fire_leaves_only_an_oversell_to_be_judged() -> None:
    assert exact_sale(fired=False).verdict == "unknown"
    orders, replies = [order(1), order(2), order(3)], [sold(1), sold(2), sold(3)]
    assert (
        exact_sale(fired=False, orders=orders, replies=replies, stock_left=-1).verdict == "oversold"
    )


def test_a_lock_that_nobody_holds_is_reported_and_the_sale_stays_exact() -> None:
    judged = exact_sale(orphan_lock="lock:token:pause-token")
    assert (judged.verdict, judged.violations) == ("exact", ("orphan_lock",))
    assert "lock:token:pause-token" in judged.findings[0].what


def test_an_order_that_nobody_asked_for_is_a_ghost() -> None:
    judged = exact_sale(orders=[order(1), order(4)], replies=[sold(1), refused(2, "unknown")])
    assert (judged.verdict, judged.violations) == ("unknown", ("ghost_order",))


def test_two_orders_of_one_key_are_a_double_order() -> None:
    twice = [order(1), {**order(2), "key": "key-1"}]
    judged = exact_sale(orders=twice, replies=[sold(1), refused(3)])
    assert (judged.verdict, judged.violations) == ("unknown", ("double_order",))


def test_an_oversell_stays_one_though_a_buyer_was_not_answered() -> None:
    orders = [order(1), order(2), order(3)]
    judged = exact_sale(orders=orders, replies=[sold(1), sold(2), refused(3, "unknown")])
    assert judged.verdict == "oversold"


def test_a_sale_that_nobody_bought_at_is_unknown() -> None:
    assert exact_sale(stock_left=2, orders=[], replies=[refused(1)]).verdict == "unknown"
    assert exact_sale(stock_left=2, orders=[], replies=[]).verdict == "unknown"


def test_an_empty_shelf_that_sells_nothing_is_exact() -> None:
    assert exact_sale(initial_stock=0, orders=[], replies=[refused(1)]).verdict == "exact"


def test_only_exact_exits_with_zero() -> None:
    assert [verdict for verdict, code in EXIT_CODES.items() if code == 0] == ["exact"]
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_who_was_killed_and_is_not_to_ask_again_is_no_unit_that_nobody_sold() -> None:
    shop = Happenings(stock=2)
    shop.buys(0, "rival-1", 2, fence=1)
    shop.asks(20, "victim")
    judged = shop.judged(excused={"victim"})
    assert (judged.verdict, judged.undersold) == ("exact", 0)
    shop.answered(30, "victim", "sold_out")
    assert shop.judged(excused={"victim"}).verdict == "undersold"


def asked_in_vain(until: float) -> Happenings:
    """One unit is sold, one is left; after the heal at 30 ms a rival is refused until then (ms)."""
    shop = Happenings(stock=2)
    shop.buys(0, "victim", 2, fence=1)
    shop.fault(20, "fire", "stopped")
    shop.fault(30, "heal", "healed")
    shop.asks(40, "rival")
    shop.answered(until, "rival", "busy")
    return shop


@pytest.mark.parametrize(("until", "verdict"), [(3041, "deadlock"), (3039, "unknown")])
def test_it_is_a_deadlock_after_three_ttl_in_which_nobody_could_buy(
    until: float, verdict: str
) -> None:
    assert asked_in_vain(until).judged().verdict == verdict


def test_it_is_none_where_somebody_bought_meanwhile_or_was_answered_that_nothing_is_left() -> None:
    bought = asked_in_vain(3041)
    bought.stock = 3
    bought.buys(2000, "another", 2, fence=2)
    assert bought.judged().verdict == "unknown"
    sold_out = asked_in_vain(3041)
    sold_out.asks(3050, "another")
    sold_out.answered(3060, "another", "sold_out")
    assert sold_out.judged().verdict != "deadlock"
