"""Each violation that is planted in a recorded rush is found, and without it the rush is exact."""

from typing import Any

import pytest

from loadtest.judge.mechanism import MECHANISMS
from loadtest.judge.verdict import Judgement
from loadtest.tests import plants
from loadtest.tests.recorded_rush import PLANTS, SALE, Plant, RecordedRush


def assert_exact(judgement: Judgement) -> None:
    assert (judgement.verdict, judgement.findings, judgement.why) == ("exact", (), "")


@pytest.mark.parametrize("lock", MECHANISMS)
def test_rush_without_a_planted_violation_is_exact(lock: str) -> None:
    """It is exact as recorded, if all answers come at the end, and without the nodes' events."""
    rush = RecordedRush(lock)
    assert_exact(rush.judge())
    late_rush = RecordedRush(lock)
    plants.answer_all_at_the_end(late_rush)
    assert_exact(late_rush.judge())
    unrecorded_rush = RecordedRush(lock)
    unrecorded_rush.remove_node_events()
    assert_exact(unrecorded_rush.judge(nodes_recorded=False))


@pytest.mark.parametrize(("plant", "lock", "rule"), PLANTS)
def test_planted_violation_is_found(plant: Plant, lock: str, rule: str) -> None:
    """The function `plant` adds a violation to a recorded rush. The judge's `rule` must find it.

    `plant` may also return arguments for judge(). If `rule` is empty, no rule has to find the
    violation, but the verdict must not be `exact`.
    """
    rush = RecordedRush(lock)
    judge_arguments = plant(rush) or {}
    judgement = rush.judge(**judge_arguments)
    assert judgement.verdict == ("oversold" if judgement.oversold else "unknown")
    if rule:
        assert rule in judgement.violations
    assert judgement.why or judgement.oversold


@pytest.mark.parametrize(
    ("plant", "lock", "difference"),
    [
        (
            plants.serve_under_another_strategy,
            "redis",
            "was served under strategy 'row-lock' instead of 'redis'",
        ),
        (
            plants.serve_under_another_strategy,
            "none",
            "was served under strategy 'row-lock' instead of 'none'",
        ),
        (plants.begin_for_another_product, "redis", "was sold pear instead of pause-token"),
        (
            plants.take_lock_of_another_product,
            "redis",
            "took the lock redis:pear instead of redis:pause-token",
        ),
        (
            plants.order_under_another_strategy,
            "redis",
            "was sold under strategy 'row-lock' instead of 'redis'",
        ),
    ],
)
def test_wrong_lock_names_what_was_recorded_and_what_was_expected(
    plant: Plant, lock: str, difference: str
) -> None:
    """The plant changes a strategy, a lock or a product in the record of the rush."""
    rush = RecordedRush(lock)
    plant(rush)
    [finding] = [finding for finding in rush.judge().findings if finding.rule == "wrong_lock"]
    assert difference in finding.description


@pytest.mark.parametrize("lock", ["conditional", "rollback", "counter"])
def test_sold_out_after_a_unit_was_seen_is_exact(lock: str) -> None:
    """The purchase reads that a unit is left, and then the statement that takes it finds none."""
    rush = RecordedRush(lock)
    plants.answer_sold_out_with_units_left(rush)
    assert_exact(rush.judge())


@pytest.mark.parametrize("lock", ["version", "serializable", "buckets", "skip-locked"])
def test_sold_out_after_a_retry_is_exact(lock: str) -> None:
    """The last buyer's purchase reads that a unit is left, tries again, and then reads none."""
    rush = RecordedRush(lock)
    plants.answer_all_at_the_end(rush)
    last_buyer = rush.buyers - 1
    rush.record(last_buyer, 5, "after_read", amount=1, sale=SALE)
    assert_exact(rush.judge())


def test_abandoned_request_may_sell_while_a_retry_is_refused() -> None:
    """Buyer 1 gives up its first request at 24 ms, but a node goes on and sells it a unit.

    Its second request, from 25 to 38 ms, is refused. Its third one is answered with the order of
    the first.
    """
    rush = RecordedRush("row-lock")
    rush.change_answer(1, "unknown")
    rush.history.events[-1]["t"] = round(24e6)
    rush.history.request(25, "buyer-1")
    rush.record(1, 5.5, "arrives")
    rush.record_begin(1, 6)
    rush.history.answer(38, "buyer-1", "busy")
    rush.repeat_request(1)
    assert_exact(rush.judge())


@pytest.mark.parametrize(("lock", "verdict"), [("skip-locked", "unknown"), ("reserve", "exact")])
def test_unit_may_be_promised_again_under_a_fault(lock: str, verdict: str) -> None:
    """Two orders have the same unit. Under `reserve` that is allowed in a rush with a fault.

    `reserve` counts its units in Redis, and a Redis that lost its data counts from the start again.
    Under `skip-locked` each unit is a row of the database, so that a fault is no excuse.
    """
    rush = RecordedRush(lock)
    plants.sell_one_unit_twice(rush)
    assert rush.judge(undisturbed=False).verdict == verdict


def test_stock_seen_too_low_by_all_buyers_is_found() -> None:
    """Three buyers read 3, 2 and 1 units instead of 4, 3 and 2."""
    rush = RecordedRush("row-lock", buyers=3)
    for number in range(rush.buyers):
        plants.set_stock_seen(rush, number, rush.stock - number - 1)
    assert rush.judge().violations == ("stale_write",)


@pytest.mark.parametrize(
    ("arrivals", "never_asked", "never_arrived", "why"),
    [(7, 1, 0, "1 never asked"), (6, 0, 1, "1 buyer never arrived")],
)
def test_buyer_who_never_asked_or_arrived_leaves_no_verdict(
    arrivals: int, never_asked: int, never_arrived: int, why: str
) -> None:
    """Six buyers are recorded, and the judge is told of a seventh, buyer-6."""
    rush = RecordedRush(buyers=6)
    judgement = rush.judge(buyer_keys=[*rush.keys, "buyer-6"], arrivals=arrivals)
    assert (judgement.verdict, judgement.why) == ("unknown", why)
    assert (judgement.never_asked, judgement.never_arrived) == (never_asked, never_arrived)


def test_sale_that_opened_with_fewer_units_has_no_verdict() -> None:
    """All three units are sold, of a sale that should have had four."""
    judgement = RecordedRush(stock=3).judge(initial_stock=4, opening_stock=3)
    assert (judgement.verdict, judgement.undersold) == ("unknown", 1)
    assert "wrong_stock" in judgement.violations


def test_oversell_is_found_without_node_events() -> None:
    """A rush in which four units were sold is judged as a sale of three units."""
    rush = RecordedRush(stock=4)
    rush.remove_node_events()
    assert rush.judge(initial_stock=3, opening_stock=3).verdict == "oversold"


def test_commit_whose_reply_was_lost_may_lack_its_end() -> None:
    """The node did not record `after_commit`, the end of the COMMIT, for the order of buyer 1.

    That is right only if the answer to the buyer was `unknown`. The buyer then asks again, and is
    answered with its order.
    """
    rush = RecordedRush()
    [after_commit] = rush.node_events("after_commit", 1)
    rush.history.events.remove(after_commit)
    assert rush.judge().violations == ("unlocked",)
    rush.change_answer(1, "unknown")
    rush.repeat_request(1)
    assert rush.judge().verdict == "exact"


def test_reentrant_lock_has_one_token_in_one_thread() -> None:
    """The token of `reentrant` names a thread: buyers of one thread share it, and no others."""
    rush = RecordedRush("reentrant")
    for kind in ("acquired", "release", "released"):
        for number in (0, 3):  # the buyers that thread 1201 served
            rush.node_events(kind, number)[0]["token"] = "thread 1201"
    assert rush.judge().verdict == "exact"
    rush.node_events("acquired", 1)[0]["token"] = "thread 1201"
    assert rush.judge().violations == ("shared_token",)


@pytest.mark.parametrize(("first_outcome", "verdict"), [("sold", "unknown"), ("unknown", "exact")])
def test_number_of_a_commit_in_doubt_may_be_used_again(first_outcome: str, verdict: str) -> None:
    """PostgreSQL was killed during the COMMIT of buyer 3, and gives the order number again.

    Buyer 3 repeats its request at 200 ms, and gets an order with the same number. If its first
    answer was `unknown`, that is right. If it was `sold`, the second order contradicts the first.
    """
    rush = RecordedRush("row-lock", buyers=4)
    number = rush.history.orders[3]["order"]
    if first_outcome == "unknown":
        rush.change_answer(3, first_outcome)
    turn_begin_ms = 60  # The times of record() count from here, the begin of buyer 3's turn.
    rush.history.request(200, "buyer-3")
    rush.history.events[-1]["sale"] = SALE
    rush.record(3, 202 - turn_begin_ms, "arrives")
    rush.record_begin(3, 203 - turn_begin_ms)
    rush.record(3, 205 - turn_begin_ms, "after_read", amount=1, sale=SALE)
    rush.record(3, 207 - turn_begin_ms, "before_commit", "invoke", order=number, sale=SALE)
    rush.history.answer(219, "buyer-3", "sold", number)
    rush.history.events[-1].update({"sold_in": SALE, "stock_seen": 1})
    assert rush.judge().verdict == verdict


def test_number_of_a_lost_order_may_be_used_again() -> None:
    """A failover lost the order of buyer 1, and its number was given to the order of buyer 2.

    Only the loss is found: the use of the same number is not a finding.
    """
    rush = RecordedRush("counter")
    lost_number = rush.history.orders.pop(1)["order"]
    rush.history.orders[1]["order"] = lost_number
    rush.change_node_events("before_commit", 2, order=lost_number)
    rush.change_sold_answers("buyer-2", order=lost_number)
    judgement = rush.judge(left=1)
    assert (judgement.verdict, judgement.violations) == (
        "undersold",
        ("lost_ack", "false_sold_out"),
    )


# --- strategies whose purchases overlap -----------------------------------------------------------


MANY_ROWS = pytest.mark.parametrize("lock", ["buckets", "skip-locked"])


def make_overlapping_rush(lock: str) -> RecordedRush:
    """Return a rush whose first two buyers buy at the same time. The first order commits last.

    Buyer 0 asks at 1 ms, and its commit is moved from 10 to 50 ms. Buyer 1 asks at 1 instead of
    21 ms, and its later events are moved 15 ms earlier.
    """
    rush = RecordedRush(lock)
    for event in rush.history.events:
        ms = event["t"] / 1e6
        if event["attempt"] == "buyer-0" and ms >= 10:
            ms += 40
        if event["attempt"] == "buyer-1":
            ms = 1 if ms == 21 else ms - 15
        event["t"] = round(ms * 1e6)
    return rush


@MANY_ROWS
def test_overlapping_orders_may_commit_in_any_order(lock: str) -> None:
    """Under these strategies the stock is in many rows, and each purchase changes only one.

    So two purchases may overlap, and neither erases the other's decrement.
    """
    assert_exact(make_overlapping_rush(lock).judge())
    judgement = make_overlapping_rush(lock).judge(left=1)
    assert (judgement.verdict, judgement.violations) == ("unknown", ("lost_update",))


@MANY_ROWS
def test_higher_number_answered_before_the_lower_is_read_is_found(lock: str) -> None:
    """Order 32 is answered at 24 ms, and the stock for order 31 is read only later, at 45 ms.

    That is impossible, because numbers rise: the clock of a node must be wrong.
    """
    rush = make_overlapping_rush(lock)
    [read_for_31] = rush.node_events("after_read", 0)
    read_for_31["t"] = round(45e6)
    judgement = rush.judge()
    descriptions = {finding.rule: finding.description for finding in judgement.findings}
    assert judgement.verdict == "unknown"
    assert (
        descriptions["commit_order"]
        == "order 32 was answered 21.0 ms before the stock was read for order 31"
    )


# --- promises: an order has its number before it is written ---------------------------------------


def make_rush_numbered_backwards(lock: str) -> RecordedRush:
    """Return a rush in which the first two buyers have each other's order numbers."""
    rush = RecordedRush(lock)
    swapped_numbers = {31: 32, 32: 31}
    records: list[Any] = [*rush.history.events, *rush.history.orders]
    for record in records:
        if record.get("order") in swapped_numbers:
            record["order"] = swapped_numbers[record["order"]]
    return rush


@pytest.mark.parametrize(
    ("lock", "violations"), [("reserve", ()), ("conditional", ("commit_order",))]
)
def test_sequence_of_numbers_counts_unless_promised(lock: str, violations: tuple[str, ...]) -> None:
    """Orders have to be sold in the sequence of their numbers.

    The orders that `reserve` promises are an exception: a consumer writes them later.
    """
    assert make_rush_numbered_backwards(lock).judge().violations == violations


def test_repeated_promise_counts_once() -> None:
    """Buyer 0, whose first answer is lost, asks again, and Redis again promises it order 32."""
    rush = make_rush_numbered_backwards("reserve")
    rush.change_answer(0, "unknown")
    rush.repeat_request(0)
    rush.record(0, 204, "reserve", "invoke")
    rush.record(0, 206, "reserved", order=32, amount=4, sale=SALE)
    assert_exact(rush.judge())
