"""Violations to plant in a recorded rush that were found by looking for what no rule would see."""

from __future__ import annotations

from loadtest.tests.recorded import Plant, RecordedRush


def a_line_is_there_twice(rush: RecordedRush) -> None:
    rush.happened.events += [dict(event) for event in rush.events("before_commit", 1)]  # type: ignore[misc]


def a_hold_says_that_it_ended_before_its_commit(rush: RecordedRush) -> None:
    rush.events("release", 1)[0]["t"] -= round(4e6)


def grants_are_not_recorded(rush: RecordedRush) -> None:
    rush.forget("acquired")


def answers_are_not_recorded(rush: RecordedRush) -> None:
    rush.happened.events = [
        e for e in rush.happened.events if e["by"] == "node" or e["type"] == "invoke"
    ]
    rush.happened.replies.clear()


def two_nodes_have_swapped_their_orders(rush: RecordedRush) -> None:
    one, other = rush.events("before_commit")[:2]
    one["order"], other["order"] = other["order"], one["order"]


def grants_have_the_fence_of_the_next_one(rush: RecordedRush) -> None:
    for event in rush.events("acquired"):
        event["fence"] += 1


def everybody_read_one_more_than_there_was(rush: RecordedRush) -> None:
    for event in rush.events("after_read"):
        event["amount"] += 1
    for order in rush.happened.orders:
        order["stock_seen"] += 1


def a_purchase_that_nobody_asked_for_was_served(rush: RecordedRush) -> None:
    rush.happened.at(31, "somebody", "arrives")


def a_nodes_clock_is_ahead_inside_long_requests(rush: RecordedRush) -> None:
    for event in rush.happened.events:
        if event["by"] == "buyer":
            event["t"] = round(1e6 if event["type"] == "invoke" else 900e6)
        elif event["node"] == "B":
            event["t"] += round(30e6)


def which_strategy_ran_is_not_recorded(rush: RecordedRush) -> None:
    rush.forget("begins")


def the_sale_is_not_recorded(rush: RecordedRush) -> None:
    for event in rush.happened.events:
        if event["by"] == "node":
            event.pop("sale", None)


def releases_find_the_lock_expired(rush: RecordedRush) -> None:
    for event in rush.events("released"):
        event["outcome"] = "expired"


def releases_are_not_recorded(rush: RecordedRush) -> None:
    rush.forget("released")


def orders_carry_the_names_of_others(rush: RecordedRush) -> None:
    rush.happened.orders[0]["buyer"] = "buyer-1"


def buyers_are_answered_with_the_fence_of_another(rush: RecordedRush) -> None:
    for event in rush.happened.events:
        if event["by"] == "buyer" and event["type"] == "ok":
            event["fence"] = 100


def buyers_are_answered_with_the_sale_before(rush: RecordedRush) -> None:
    for event in rush.happened.events:
        if event["by"] == "buyer" and event["type"] == "ok":
            event["sold_in"] = 6


HIDDEN: list[tuple[Plant, str]] = [
    (a_line_is_there_twice, "contradiction"),
    (a_hold_says_that_it_ended_before_its_commit, "unlocked"),
    (grants_are_not_recorded, "unlocked"),
    (answers_are_not_recorded, ""),
    (two_nodes_have_swapped_their_orders, "unrecorded"),
    (grants_have_the_fence_of_the_next_one, "wrong_fence"),
    (everybody_read_one_more_than_there_was, "stale_write"),
    (a_purchase_that_nobody_asked_for_was_served, "outside_request"),
    (a_nodes_clock_is_ahead_inside_long_requests, "commit_order"),
    (which_strategy_ran_is_not_recorded, "unrecorded"),
    (the_sale_is_not_recorded, "contradiction"),
    (releases_find_the_lock_expired, "expired_hold"),
    (releases_are_not_recorded, "expired_hold"),
    (orders_carry_the_names_of_others, "contradiction"),
    (buyers_are_answered_with_the_fence_of_another, "contradiction"),
    (buyers_are_answered_with_the_sale_before, "contradiction"),
]
