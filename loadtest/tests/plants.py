"""Violations to plant in a recorded rush, each with the finding that it has to lead to."""

from __future__ import annotations

from typing import Any

from loadtest.judge.history import DAMAGED
from loadtest.tests.hidden_plants import HIDDEN
from loadtest.tests.recorded import Plant, RecordedRush


def half_of_the_stock_is_opened(rush: RecordedRush) -> Any:
    return {"opened": 2, "asked": {"stock": 4}}


def every_third_is_answered_sold_out_at_once(rush: RecordedRush) -> None:
    """The node never looks at the stock, and the totals come out right."""
    last = rush.buyers - 1
    rush.happened.events = [
        e for e in rush.happened.events
        if e["by"] != "node" or e["attempt"] != f"buyer-{last}" or e["f"] in {"arrives", "begins"}
    ]  # fmt: skip


def busy_but_sold_and_the_retry_replays(rush: RecordedRush) -> None:
    order = rush.happened.orders[1]["order"]
    rush.answer(1, "busy")
    rush.happened.asks(200, "buyer-1")
    rush.happened.answered(210, "buyer-1", "sold", order)
    rush.happened.events[-1]["replayed"] = True


def stale_writes_and_the_stock_put_right_afterwards(rush: RecordedRush) -> None:
    for order, commit in zip(rush.happened.orders, rush.events("after_read"), strict=False):
        order["stock_seen"] = commit["amount"] = 4


def no_lock_though_the_database_is_exact(rush: RecordedRush) -> None:
    rush.forget("acquire", "acquired", "release", "released")


def everybody_is_granted_the_lock_at_once(rush: RecordedRush) -> None:
    for event in rush.events("acquired"):
        event["t"] = round(4.5e6)
    for event in rush.events("acquire"):
        event["t"] = round(4.4e6)
    for event in rush.happened.events:
        if event["by"] == "buyer" and event["type"] == "invoke":
            event["t"] = round(1e6)


def everybody_has_the_same_token(rush: RecordedRush) -> None:
    everybody_is_granted_the_lock_at_once(rush)
    for kind in ("acquired", "release", "released"):
        for event in rush.events(kind):
            event["token"] = "one"


def the_nodes_record_nothing(rush: RecordedRush) -> None:
    rush.forget()


def one_node_is_silent(rush: RecordedRush) -> None:
    rush.forget(node="B")


def the_times_of_a_purchase_are_shifted(rush: RecordedRush) -> None:
    """By a second, for one buyer: no two holds overlap then."""
    for event in rush.happened.events:
        if event["by"] == "node" and event["attempt"] == "buyer-1":
            event["t"] += 10**9


def the_times_are_shifted_inside_the_requests(rush: RecordedRush) -> None:
    """All were asked and answered at the same time, and the second says that it came last."""
    for event in rush.happened.events:
        if event["by"] == "buyer":
            event["t"] = round(1e6 if event["type"] == "invoke" else 900e6)
        elif event["attempt"] == "buyer-1":
            event["t"] += round(500e6)


def orders_without_a_fence(rush: RecordedRush) -> None:
    for order in rush.happened.orders:
        order["fence"] = None


def the_fence_of_another_grant(rush: RecordedRush) -> None:
    rush.happened.orders[3]["fence"] += 50


def the_commit_is_outside_of_its_request(rush: RecordedRush) -> None:
    [event] = rush.events("before_commit", 2)
    event["t"] -= round(9.5e6)


def the_commit_is_outside_of_every_hold(rush: RecordedRush) -> None:
    [event] = rush.events("before_commit", 2)
    event["t"] += round(4.5e6)


def a_key_is_left_on_the_server(rush: RecordedRush) -> Any:
    return {"leaked": ["lock:{redis:pause-token}:waiters"]}


def a_quarter_is_answered_busy_to_the_end(rush: RecordedRush) -> None:
    rush.answer(5, "busy")


def another_lock_is_used(rush: RecordedRush) -> None:
    for event in rush.events("begins"):
        event["lock"] = "row-lock"


def orders_name_another_lock(rush: RecordedRush) -> None:
    rush.happened.orders[0]["lock"] = "row-lock"


def the_lock_of_another_product_is_taken(rush: RecordedRush) -> None:
    rush.events("acquired")[0]["lock_name"] = "redis:pear"


def a_line_of_the_history_is_damaged(rush: RecordedRush) -> None:
    damaged: Any = {"t": 0, "by": DAMAGED, "type": "fail", "f": "line", "what": "a broken line"}
    rush.happened.events.append(damaged)


def an_order_was_committed_in_another_sale(rush: RecordedRush) -> None:
    [event] = rush.events("before_commit", 2)
    event["sale"] = 6


def an_order_saw_another_stock_than_its_node(rush: RecordedRush) -> None:
    [event] = rush.events("after_read", 2)
    event["amount"] = 40


def a_node_reads_before_it_holds_the_lock(rush: RecordedRush) -> None:
    [event] = rush.events("after_read", 2)
    event["t"] = rush.events("acquired", 2)[0]["t"] - 1


def a_node_commits_after_it_has_released(rush: RecordedRush) -> None:
    [event] = rush.events("after_commit", 2)
    event["t"] += round(4e6)


PLANTS: list[tuple[Plant, str]] = [
    (half_of_the_stock_is_opened, "wrong_stock"),
    (every_third_is_answered_sold_out_at_once, "unrecorded"),
    (busy_but_sold_and_the_retry_replays, "false_refusal"),
    (stale_writes_and_the_stock_put_right_afterwards, "stale_write"),
    (no_lock_though_the_database_is_exact, "unlocked"),
    (everybody_is_granted_the_lock_at_once, "overlap"),
    (everybody_has_the_same_token, "shared_token"),
    (everybody_has_the_same_token, "overlap"),
    (the_nodes_record_nothing, "unrecorded"),
    (one_node_is_silent, "unrecorded"),
    (the_times_of_a_purchase_are_shifted, "outside_request"),
    (the_times_are_shifted_inside_the_requests, "commit_order"),
    (orders_without_a_fence, "wrong_fence"),
    (the_fence_of_another_grant, "wrong_fence"),
    (the_commit_is_outside_of_its_request, "outside_request"),
    (the_commit_is_outside_of_every_hold, "unlocked"),
    (a_key_is_left_on_the_server, "leaked_key"),
    (a_quarter_is_answered_busy_to_the_end, ""),
    (another_lock_is_used, "wrong_lock"),
    (orders_name_another_lock, "wrong_lock"),
    (the_lock_of_another_product_is_taken, "wrong_lock"),
    (a_line_of_the_history_is_damaged, "broken_history"),
    (an_order_was_committed_in_another_sale, "contradiction"),
    (an_order_saw_another_stock_than_its_node, "contradiction"),
    (a_node_reads_before_it_holds_the_lock, "unlocked"),
    (a_node_commits_after_it_has_released, "unlocked"),
    *HIDDEN,
]
