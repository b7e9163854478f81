"""What is planted in a whole recorded rush is found, and the rush without it is exact."""

from typing import Any

import pytest

from loadtest.judge.evidence import EVIDENCE
from loadtest.judge.verdict import Judgement
from loadtest.tests import plants
from loadtest.tests.recorded_rush import PLANTS, Plant, RecordedRush


def assert_exact(judgement: Judgement) -> None:
    assert (judgement.verdict, judgement.findings, judgement.why) == ("exact", (), "")


@pytest.mark.parametrize("lock", EVIDENCE)
def test_a_rush_without_a_plant_is_exact_also_if_not_recorded_or_answered_late(lock: str) -> None:
    rush, late, unrecorded = (RecordedRush(lock) for _ in range(3))
    assert_exact(rush.judge())
    plants.answer_all_at_the_end(late)
    assert_exact(late.judge())
    unrecorded.remove_node_events()
    assert_exact(unrecorded.judge(nodes_recorded=False))


@pytest.mark.parametrize(("plant", "lock", "rule"), PLANTS)
def test_what_is_planted_in_a_rush_is_found_and_leaves_no_verdict(
    plant: Plant, lock: str, rule: str
) -> None:
    rush = RecordedRush(lock)
    judgement = rush.judge(**(plant(rush) or {}))
    assert judgement.verdict == ("oversold" if judgement.oversold else "unknown")
    assert not rule or rule in judgement.violations, judgement.violations
    assert judgement.why or judgement.oversold


@pytest.mark.parametrize("lock", ["conditional", "rollback", "counter"])
def test_who_saw_a_unit_and_was_too_late_for_it_is_rightly_sold_out(lock: str) -> None:
    """Such a purchase looks first, and the statement that takes the unit finds none."""
    rush = RecordedRush(lock)
    plants.a_node_sees_units_and_answers_sold_out(rush)
    assert_exact(rush.judge())


@pytest.mark.parametrize("lock", ["version", "serializable", "buckets", "skip-locked"])
def test_who_tries_anew_and_finds_nothing_then_is_rightly_sold_out(lock: str) -> None:
    rush = RecordedRush(lock)
    plants.answer_all_at_the_end(rush)
    rush.record(rush.buyers - 1, 5, "after_read", amount=1, sale=7)
    assert_exact(rush.judge())


def test_a_purchase_that_was_given_up_may_sell_while_its_buyer_asks_again_and_is_refused() -> None:
    """The refusal is no lie: it is the answer to another request than the one that sold."""
    rush = RecordedRush("row-lock")
    rush.change_answer(1, "unknown")
    rush.history.events[-1]["t"] = round(24e6)
    rush.history.ask(25, "buyer-1")
    rush.history.answer(38, "buyer-1", "busy")
    rush.record(1, 5.5, "arrives")
    rush.record(1, 6, "begins", "invoke", lock="row-lock", product="pause-token", sale=7)
    rush.ask_again(1)
    assert_exact(rush.judge())


@pytest.mark.parametrize(("lock", "verdict"), [("skip-locked", "unknown"), ("reserve", "exact")])
def test_under_a_fault_a_unit_has_one_row_still_and_may_be_promised_again(
    lock: str, verdict: str
) -> None:
    """A Redis that lost promises counts anew, and gives back the unit of a key that has bought."""
    rush = RecordedRush(lock)
    plants.one_unit_is_sold_twice_and_another_is_lost(rush)
    assert rush.judge(undisturbed=False).verdict == verdict


def test_a_stock_of_which_everybody_saw_one_unit_less_than_was_left_is_found() -> None:
    rush = RecordedRush("row-lock", buyers=3)
    for number in range(rush.buyers):
        plants.set_stock_seen(rush, number, rush.stock - number - 1)
    assert rush.judge().violations == ("stale_write",)


@pytest.mark.parametrize(("arrived", "why"), [(7, "1 never asked"), (6, "1 buyers never arrived")])
def test_one_buyer_who_never_asked_or_never_arrived_leaves_no_verdict(
    arrived: int, why: str
) -> None:
    rush = RecordedRush()
    judgement = rush.judge(buyer_keys=[*rush.keys, "buyer-6"], arrivals=arrived)
    assert (judgement.verdict, judgement.why) == ("unknown", why)
    assert (judgement.never_asked, judgement.never_arrived) == (arrived - 6, 7 - arrived)


def test_of_a_sale_with_fewer_units_than_were_asked_for_nothing_is_concluded() -> None:
    """Not that it is undersold either: the shop was to sell another sale."""
    judgement = RecordedRush(stock=3).judge(initial_stock=4, opening_stock=3)
    assert (judgement.verdict, judgement.undersold) == ("unknown", 1)
    assert "wrong_stock" in judgement.violations


def test_an_oversell_stays_one_though_the_nodes_are_silent() -> None:
    rush = RecordedRush(stock=4)
    rush.remove_node_events()
    assert rush.judge(initial_stock=3, opening_stock=3).verdict == "oversold"


def test_a_commit_whose_reply_was_lost_may_lack_its_end() -> None:
    """Its buyer asked again, and was answered with the order that there was."""
    rush = RecordedRush()
    [event] = rush.node_events("after_commit", 1)
    rush.history.events.remove(event)
    assert rush.judge().violations == ("unlocked",)
    rush.change_answer(1, "unknown")
    rush.ask_again(1)
    assert rush.judge().verdict == "exact"


def test_a_holder_that_enters_its_own_reentrant_lock_again_has_one_token_in_one_thread() -> None:
    rush = RecordedRush("reentrant")
    for kind in ("acquired", "release", "released"):
        for number in (0, 3):  # both in node A, process 12, thread 1201
            rush.node_events(kind, number)[0]["token"] = "thread 1201"
    assert rush.judge().verdict == "exact"
    rush.node_events("acquired", 1)[0]["token"] = "thread 1201"
    assert rush.judge().violations == ("shared_token",)


@pytest.mark.parametrize(("first", "verdict"), [("sold", "unknown"), ("unknown", "exact")])
def test_the_number_of_a_commit_in_doubt_may_be_used_again(first: str, verdict: str) -> None:
    """The server was killed in the COMMIT, and its successor counts from where it had been. Who was
    answered `sold` has an order already."""
    rush = RecordedRush("row-lock", buyers=4)
    order = rush.history.orders[3]["order"]
    if first == "unknown":
        rush.change_answer(3, first)
    rush.history.ask(200, "buyer-3")
    rush.history.events[-1]["sale"] = 7
    rush.record(3, 142, "arrives")
    rush.record(3, 143, "begins", "invoke", lock="row-lock", product="pause-token", sale=7)
    rush.record(3, 145, "after_read", amount=1, sale=7)
    rush.record(3, 147, "before_commit", "invoke", order=order, sale=7)
    rush.history.answer(219, "buyer-3", "sold", order)
    rush.history.events[-1].update({"sold_in": 7, "stock_seen": 1})
    assert rush.judge().verdict == verdict


def test_the_number_of_an_order_that_was_lost_may_be_used_again() -> None:
    """A failover forgot what its buyer had been answered: nothing else is doubted for that."""
    rush = RecordedRush("counter")
    lost = rush.history.orders.pop(1)["order"]
    for one in (rush.history.orders[1], *rush.node_events("before_commit", 2)):
        one["order"] = lost
    rush.change_sold_answers("buyer-2", order=lost)
    judgement = rush.judge(left=1)
    assert (judgement.verdict, judgement.violations) == (
        "undersold",
        ("lost_ack", "false_sold_out"),
    )


# --- buyers write different rows, so that their purchases overlap, or no row yet ------------------


many_rows = pytest.mark.parametrize("lock", ["buckets", "skip-locked"])


def overlapping(lock: str) -> RecordedRush:
    """The first two buyers are asked at once; the one with the smaller number commits last."""
    rush = RecordedRush(lock)
    for event in rush.history.events:
        if event["attempt"] == "buyer-0" and event["t"] >= 10e6:
            event["t"] += round(40e6)
        if event["attempt"] == "buyer-1" and event["t"] > 21e6:
            event["t"] -= round(15e6)
        if event["attempt"] == "buyer-1" and event["by"] == "buyer" and event["type"] == "invoke":
            event["t"] = round(1e6)
    return rush


@many_rows
def test_orders_that_overlap_may_commit_in_any_order_whatever_they_saw(lock: str) -> None:
    """The sum over many rows that a buyer read is not what it wrote back."""
    assert_exact(overlapping(lock).judge())
    judgement = overlapping(lock).judge(left=1)
    assert (judgement.verdict, judgement.violations) == ("unknown", ("lost_update",))


@many_rows
def test_an_order_answered_before_another_was_read_for_has_the_smaller_number(lock: str) -> None:
    """The stock is read for order 31 after order 32 was answered: one of their clocks is wrong."""
    rush = overlapping(lock)
    rush.node_events("after_read", 0)[0]["t"] = round(45e6)
    judgement = rush.judge()
    said = {finding.rule: finding.description for finding in judgement.findings}["commit_order"]
    assert judgement.verdict == "unknown"
    assert said == "order 32 was answered 21.0 ms before the stock was read for order 31"


# --- promises: an order has its number before anybody writes it ----------------------------------


def numbered_backwards(lock: str) -> RecordedRush:
    """The first buyer's order has the higher number of the first two."""
    rush = RecordedRush(lock)
    other = {31: 32, 32: 31}
    numbered: list[Any] = [*rush.history.events, *rush.history.orders]
    for one in numbered:
        if one.get("order") in other:
            one["order"] = other[one["order"]]
    return rush


@pytest.mark.parametrize(("lock", "found"), [("reserve", ()), ("conditional", ("commit_order",))])
def test_the_order_of_numbers_counts_unless_promised(lock: str, found: tuple[str, ...]) -> None:
    assert numbered_backwards(lock).judge().violations == found


def test_a_promise_that_is_named_again_was_made_once() -> None:
    rush = numbered_backwards("reserve")
    rush.change_answer(0, "unknown")
    rush.ask_again(0)
    rush.record(0, 204, "reserve", "invoke")
    rush.record(0, 206, "reserved", order=32, amount=4, sale=7)
    assert_exact(rush.judge())
