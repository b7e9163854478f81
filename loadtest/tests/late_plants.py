"""Violations that the judge did not find under strategies of the database and of Redis: each with
the strategies under which it has to be found, and as what."""

from __future__ import annotations

from typing import Any

from loadtest.judge.evidence import EVIDENCE
from loadtest.judge.sale_record import Reply
from loadtest.tests.recorded import Plant, RecordedRush

#: What a node records of the stock that a purchase saw.
SAW = "after_read", "reserved"
#: One for each way to know what a buyer saw.
EACH_WAY = ("redis", "row-lock", "conditional", "counter", "buckets", "skip-locked", "reserve")


def sees(rush: RecordedRush, number: int, amount: int) -> None:
    """Change what a buyer saw, everywhere where it is recorded."""
    for kind in SAW:
        for event in rush.events(kind, number):
            event["amount"] = amount
    for order in rush.happened.orders:
        if order["key"] == f"buyer-{number}":
            order["stock_seen"] = amount


def everybody_saw_a_unit_of_another_sale_as_well(rush: RecordedRush) -> None:
    """A bucket of another sale in the sum, say: there were never so many."""
    for number in range(rush.stock):
        sees(rush, number, rush.stock - number + 1)


def the_last_unit_was_sold_out_of_nothing(rush: RecordedRush) -> None:
    sees(rush, rush.stock - 1, 0)


def one_unit_is_sold_twice_and_another_is_lost(rush: RecordedRush) -> None:
    """The totals are right."""
    sees(rush, 1, rush.stock)


def all_are_answered_at_the_end(rush: RecordedRush) -> None:
    """So nobody can say from the times alone what was gone when."""
    for event in rush.happened.events:
        if event["by"] == "buyer":
            event["t"] = round((1 if event["type"] == "invoke" else 900) * 1e6)


def a_node_sees_units_and_answers_sold_out(rush: RecordedRush) -> None:
    all_are_answered_at_the_end(rush)
    sees(rush, rush.buyers - 1, 2)


def somebody_else_buys_through_a_worker(rush: RecordedRush) -> Any:
    """Its answer is reported with those of the buyers, under a key that none of them has."""
    key, to = "buyer-1", "somebody"
    for event in rush.happened.events:
        if event.get("attempt") == key:
            event["attempt"] = to
    rush.happened.orders[1] |= {"key": to, "buyer": to}
    rush.happened.replies[to] = Reply(to, "sold", rush.happened.replies.pop(key).order)
    keys = [one for one in rush.keys if one != key]
    return {"asked": {"buyers": keys, "arrived": len(keys)}}


def a_second_request_is_refused_by_a_node_that_recorded_nothing(rush: RecordedRush) -> None:
    """Its first one was recorded, and answered busy."""
    rush.answer(5, "busy")
    rush.happened.asks(200, "buyer-5")
    rush.happened.answered(210, "buyer-5", "sold_out")


def a_node_read_less_than_its_order_says(rush: RecordedRush) -> None:
    for kind in SAW:
        for event in rush.events(kind, 1):
            event["amount"] -= 1


def the_first_answer_to_a_buyer_is_a_replay(rush: RecordedRush) -> None:
    order = rush.happened.orders[1]["order"]
    rush.answer(1, "sold", order=order, replayed=True, sold_in=7)


def an_order_that_was_committed_is_committed_again(rush: RecordedRush) -> None:
    """Its buyer was in doubt, and its number cannot have been forgotten: the COMMIT came back."""
    order = rush.happened.orders[1]["order"]
    rush.answer(1, "unknown")
    rush.at(1, 30, "after_read", amount=3, sale=7)
    rush.at(1, 32, "before_commit", "invoke", order=order, sale=7)
    rush.at(1, 33, "after_commit", sale=7)
    rush.happened.asks(200, "buyer-1")
    rush.happened.answered(210, "buyer-1", "sold", order)
    rush.happened.events[-1].update({"replayed": True, "sold_in": 7})
    rush.at(1, 182, "arrives")
    rush.at(1, 183, "begins", "invoke", lock=rush.lock, product="pause-token", sale=7)


LATE: list[tuple[Plant, str, str]] = [
    (plant, lock, rule)
    for plant, locks, rule in (
        (everybody_saw_a_unit_of_another_sale_as_well, EACH_WAY, "stale_write"),
        (the_last_unit_was_sold_out_of_nothing, EACH_WAY, "stale_write"),
        (one_unit_is_sold_twice_and_another_is_lost, ("skip-locked", "reserve"), "stale_write"),
        (
            a_node_sees_units_and_answers_sold_out,
            ("redis", "row-lock", "buckets", "skip-locked"),
            "false_sold_out",
        ),
        (a_second_request_is_refused_by_a_node_that_recorded_nothing, EACH_WAY, "unrecorded"),
        (a_node_read_less_than_its_order_says, ("conditional", "buckets"), "contradiction"),
        (the_first_answer_to_a_buyer_is_a_replay, EACH_WAY, "false_refusal"),
        (an_order_that_was_committed_is_committed_again, ("redis",), "contradiction"),
        (somebody_else_buys_through_a_worker, EACH_WAY, "foreign_key"),
    )
    for lock in locks
]
assert {lock for _, lock, _ in LATE} <= EVIDENCE.keys()
