"""The judge finds each violation that is planted in the record of an exact rush.

A plant is a function that adds a violation to a RecordedRush, for example a lock that is held
twice. Without a plant the rush is exact. Six buyers, 0 to 5, want four units; buyer N sends its
request at 20 * N + 1 ms, and buyers 0 to 3 get the orders 31 to 34.
"""

from typing import Any

import pytest

from loadtest.judge.mechanism import MECHANISMS
from loadtest.judge.verdict import Judgement
from loadtest.tests import plants
from loadtest.tests.recorded_rush import PLANTS, SALE, TURN_MS, Plant, RecordedRush


def assert_exact(judgement: Judgement) -> None:
    """Assert that the verdict is `exact`, without findings of any rule."""
    assert (judgement.verdict, judgement.findings, judgement.why) == ("exact", (), "")


@pytest.mark.parametrize("lock", MECHANISMS)
def test_rush_without_a_planted_violation_is_exact(lock: str) -> None:
    """The rush is exact as it is recorded.

    It is also exact if all answers come at the end, so that they do not show who bought first, and
    if the nodes recorded no events.
    """
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
    """The function `plant` adds a violation to a recorded rush, which `rule` must find.

    A plant may also return arguments for judge(). If `rule` is empty, no particular rule has to
    find the violation, but the verdict must not be `exact`.
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
def test_finding_wrong_lock_has_the_recorded_and_the_expected_name(
    plant: Plant, lock: str, difference: str
) -> None:
    """A plant is a function that adds a violation to a recorded rush.

    Here it changes the name of a strategy, a lock or a product in the record.
    """
    rush = RecordedRush(lock)
    plant(rush)
    [finding] = [finding for finding in rush.judge().findings if finding.rule == "wrong_lock"]
    assert difference in finding.description


@pytest.mark.parametrize("lock", ["conditional", "rollback", "counter"])
def test_sold_out_after_a_read_of_one_unit_is_exact(lock: str) -> None:
    """A purchase reads that a unit is left, but another purchase takes the unit first.

    Under these strategies the purchase then takes no unit, and the buyer is answered `sold_out`.
    """
    rush = RecordedRush(lock)
    plants.answer_sold_out_with_units_left(rush)
    assert_exact(rush.judge())


@pytest.mark.parametrize("lock", ["version", "serializable", "buckets", "skip-locked"])
def test_sold_out_after_a_retry_is_exact(lock: str) -> None:
    """The last buyer's purchase first reads that a unit is left.

    Another buyer is faster, so the purchase has to try again. Then it reads that no unit is left.
    """
    rush = RecordedRush(lock)
    plants.answer_all_at_the_end(rush)
    last_buyer = rush.buyers - 1
    rush.record(last_buyer, 5, "after_read", amount=1, sale=SALE)
    assert_exact(rush.judge())


def test_unanswered_request_may_sell_while_a_retry_is_refused() -> None:
    """Buyer 1 sends three requests with one key.

    It stops waiting for the first answer at 24 ms, but the node still sells a unit for this
    request. The second request, from 25 to 38 ms, is refused. The third request is answered with
    the order that the first one made.
    """
    rush = RecordedRush("row-lock")
    rush.change_answer(1, "unknown")
    rush.history.events[-1]["t"] = round(24e6)  # the time of that answer, in ns
    rush.history.request(25, "buyer-1")
    rush.record(1, 5.5, "arrives")
    rush.record_begin(1, 6)
    rush.history.answer(38, "buyer-1", "busy")
    rush.repeat_request(1)
    assert_exact(rush.judge())


@pytest.mark.parametrize(("lock", "verdict"), [("skip-locked", "unknown"), ("reserve", "exact")])
def test_unit_may_be_sold_again_if_a_fault_erased_its_counter(lock: str, verdict: str) -> None:
    """Two orders have the same unit, and a fault has disturbed the rush.

    Under `reserve` the next unit is counted in Redis. If a fault erases the data of Redis, the
    counter begins again, so the two orders are no violation. Under `skip-locked` each unit is a row
    of the database, which no fault erases.
    """
    rush = RecordedRush(lock)
    plants.sell_one_unit_twice(rush)
    assert rush.judge(undisturbed=False).verdict == verdict


def test_stock_seen_too_low_by_all_buyers_is_found() -> None:
    """Three buyers read 3, 2 and 1 units of stock, where 4, 3 and 2 were left."""
    rush = RecordedRush("row-lock", buyers=3)
    for number in range(rush.buyers):
        plants.set_stock_seen(rush, number, rush.stock - number - 1)
    assert rush.judge().violations == ("stale_write",)


@pytest.mark.parametrize(
    ("arrivals", "never_asked", "never_arrived", "why"),
    [(7, 1, 0, "1 buyer sent no request"), (6, 0, 1, "1 buyer never became ready to buy")],
)
def test_rush_with_a_buyer_without_a_request_is_unknown(
    arrivals: int, never_asked: int, never_arrived: int, why: str
) -> None:
    """The run had seven buyers, but the record has requests of only six: none of buyer-6.

    arrivals       how many buyers became ready to buy
    never_asked    how many were ready and sent no request
    never_arrived  how many never became ready
    """
    rush = RecordedRush(buyers=6)
    judgement = rush.judge(buyer_keys=[*rush.keys, "buyer-6"], arrivals=arrivals)
    assert (judgement.verdict, judgement.why) == ("unknown", why)
    assert (judgement.never_asked, judgement.never_arrived) == (never_asked, never_arrived)


def test_sale_that_opened_with_fewer_units_is_unknown() -> None:
    """The run requested four units, but the shop opened the sale with three. All three are sold."""
    judgement = RecordedRush(stock=3).judge(initial_stock=4, opening_stock=3)
    assert (judgement.verdict, judgement.undersold) == ("unknown", 1)
    assert "wrong_stock" in judgement.violations


def test_oversell_is_found_without_node_events() -> None:
    """The rush was recorded with four units and four orders. It is judged as a sale of three."""
    rush = RecordedRush(stock=4)
    rush.remove_node_events()
    assert rush.judge(initial_stock=3, opening_stock=3).verdict == "oversold"


def test_end_of_a_commit_may_be_missing_if_the_answer_was_lost() -> None:
    """The node did not record `after_commit`, the end of the COMMIT, for the order of buyer 1.

    If the buyer was answered `sold`, the missing event is a violation. If the answer was `unknown`,
    and the repeated request is answered with the order, there is no violation.
    """
    rush = RecordedRush()
    [after_commit] = rush.node_events("after_commit", 1)
    rush.history.events.remove(after_commit)
    assert rush.judge().violations == ("unlocked",)
    rush.change_answer(1, "unknown")
    rush.repeat_request(1)
    assert rush.judge().verdict == "exact"


def test_reentrant_lock_has_one_token_in_one_thread() -> None:
    """The token of the strategy `reentrant` is the id of a thread.

    So the buyers whom one thread served have the same token. The tokens of two threads differ.
    """
    rush = RecordedRush("reentrant")
    for kind in ("acquired", "release", "released"):
        for number in (0, 3):  # thread 1201 served these two buyers
            rush.node_events(kind, number)[0]["token"] = "thread 1201"
    assert rush.judge().verdict == "exact"
    rush.node_events("acquired", 1)[0]["token"] = "thread 1201"
    assert rush.judge().violations == ("shared_token",)


@pytest.mark.parametrize(("first_outcome", "verdict"), [("sold", "unknown"), ("unknown", "exact")])
def test_order_number_of_an_unfinished_commit_may_be_used_again(
    first_outcome: str, verdict: str
) -> None:
    """PostgreSQL was killed during the COMMIT for buyer 3, and later uses the order number again.

    Buyer 3 repeats its request at 200 ms, and its new order has the same number. That is right if
    the first answer was `unknown`. If the first answer was `sold`, the second order contradicts it.
    """
    rush = RecordedRush("row-lock", buyers=4)
    number = rush.history.orders[3]["order"]
    if first_outcome == "unknown":
        rush.change_answer(3, first_outcome)
    turn_begin_ms = 3 * TURN_MS  # record() counts its times from here, the turn of buyer 3
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
    """A failover lost the order of buyer 1, and the next order, of buyer 2, got the same number.

    The judge finds the lost order and the unit that is left, but not the second use of the number.
    """
    rush = RecordedRush("counter")
    lost_number = rush.history.orders.pop(1)["order"]
    rush.history.orders[1]["order"] = lost_number
    rush.change_node_events("before_commit", 2, order=lost_number)
    rush.change_sold_answers("buyer-2", order=lost_number)
    judgement = rush.judge(stock_left=1)
    assert (judgement.verdict, judgement.violations) == (
        "undersold",
        ("lost_ack", "false_sold_out"),
    )


# --- strategies whose purchases overlap -----------------------------------------------------------


#: Strategies under which the stock is in many rows, and each purchase changes only one of them.
FOR_STRATEGIES_WITH_MANY_STOCK_ROWS = pytest.mark.parametrize("lock", ["buckets", "skip-locked"])


def make_overlapping_rush(lock: str) -> RecordedRush:
    """Return a rush whose first two buyers buy at the same time.

    Both requests are sent at 1 ms. Buyer 0's commit, of order 31, is moved from 10 to 50 ms. Buyer
    1's events are moved 15 ms earlier, so order 32 is committed before order 31.
    """
    rush = RecordedRush(lock)
    for event in rush.history.events:
        ms = event["t"] / 1e6
        if event["attempt"] == "buyer-0" and ms >= 10:
            ms += 40
        if event["attempt"] == "buyer-1":
            ms = 1 if ms == TURN_MS + 1 else ms - 15  # its request is sent at TURN_MS + 1
        event["t"] = round(ms * 1e6)
    return rush


@FOR_STRATEGIES_WITH_MANY_STOCK_ROWS
def test_overlapping_orders_may_commit_in_any_order(lock: str) -> None:
    """Two purchases change different rows of the stock, so neither erases the other's decrement.

    But a lost update is still found: one unit is left in the second rush.
    """
    assert_exact(make_overlapping_rush(lock).judge())
    judgement = make_overlapping_rush(lock).judge(stock_left=1)
    assert (judgement.verdict, judgement.violations) == ("unknown", ("lost_update",))


@FOR_STRATEGIES_WITH_MANY_STOCK_ROWS
def test_order_numbers_against_the_sequence_in_time_are_found(lock: str) -> None:
    """Order 32 is answered at 24 ms, but the stock for order 31 is read at 45 ms.

    An order gets its number after the stock is read, and numbers rise. So order 31 should have the
    higher number, or the clock of a node is wrong.
    """
    rush = make_overlapping_rush(lock)
    [read_for_31] = rush.node_events("after_read", 0)
    read_for_31["t"] = round(45e6)  # 45 ms, in ns
    judgement = rush.judge()
    descriptions = {finding.rule: finding.description for finding in judgement.findings}
    assert judgement.verdict == "unknown"
    assert (
        descriptions["commit_order"]
        == "order 32 was answered 21.0 ms before the stock was read for order 31"
    )


# --- promised orders, which get their number before they are written ------------------------------


def make_rush_numbered_backwards(lock: str) -> RecordedRush:
    """Return a rush in which buyers 0 and 1 have each other's order numbers, 32 and 31."""
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
def test_only_promised_orders_may_be_sold_out_of_sequence(
    lock: str, violations: tuple[str, ...]
) -> None:
    """Orders have to be sold in the sequence of their numbers, as under `conditional`.

    Under `reserve` a node only promises an order, and a consumer writes it later. So its orders are
    an exception.
    """
    assert make_rush_numbered_backwards(lock).judge().violations == violations


def test_promise_that_is_repeated_counts_once() -> None:
    """Under `reserve` a node only promises an order: a consumer writes it later.

    Buyer 0 is promised order 32, but the answer is lost. It repeats its request, and is promised
    order 32 again.
    """
    rush = make_rush_numbered_backwards("reserve")
    rush.change_answer(0, "unknown")
    rush.repeat_request(0)
    rush.record(0, 204, "reserve", "invoke")
    rush.record(0, 206, "reserved", order=32, amount=4, sale=SALE)
    assert_exact(rush.judge())
