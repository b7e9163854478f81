"""Violations to plant in what the nodes of a rush recorded: of locks, reads and commits."""

from typing import Any

from loadtest.judge.history import DAMAGED
from loadtest.tests.recorded import ALL, EACH_WAY, FENCED, LOCKED, RecordedRush, plant

#: What a node records of the stock that a purchase saw.
SAW = "after_read", "reserved"


def all_are_answered_at_the_end(rush: RecordedRush) -> None:
    """So nobody can say from the times alone what was gone when."""
    for event in rush.happened.events:
        if event["by"] == "buyer":
            event["t"] = round((1 if event["type"] == "invoke" else 900) * 1e6)


def sees(rush: RecordedRush, number: int, amount: int) -> None:
    """Change what a buyer saw, everywhere where it is recorded."""
    for kind in SAW:
        rush.change(kind, number, amount=amount)
    for order in rush.happened.orders:
        if order["key"] == f"buyer-{number}":
            order["stock_seen"] = amount


# --- locks ---------------------------------------------------------------------------------------


@plant("unlocked")
def no_lock_though_the_database_is_exact(rush: RecordedRush) -> None:
    rush.forget("acquire", "acquired", "release", "released")


@plant("overlap")
def everybody_is_granted_the_lock_at_once(rush: RecordedRush) -> None:
    for kind, ms in {"acquired": 4.5, "acquire": 4.4}.items():
        rush.change(kind, t=round(ms * 1e6))
    for event in rush.happened.events:
        if event["by"] == "buyer" and event["type"] == "invoke":
            event["t"] = round(1e6)


@plant("shared_token", "overlap")
def everybody_has_the_same_token(rush: RecordedRush) -> None:
    everybody_is_granted_the_lock_at_once(rush)
    for kind in ("acquired", "release", "released"):
        rush.change(kind, token="one")


@plant("shared_token", locks=LOCKED)
def a_grant_has_no_token(rush: RecordedRush) -> None:
    for number in (1, 2):
        for kind in ("acquired", "release", "released"):
            rush.change(kind, number, token="")


@plant("wrong_fence")
def orders_without_a_fence(rush: RecordedRush) -> None:
    for order in rush.happened.orders:
        order["fence"] = None


@plant("wrong_fence")
def the_fence_of_another_grant(rush: RecordedRush) -> None:
    rush.happened.orders[3]["fence"] += 50


@plant("fence_fell", locks=FENCED)
def fences_jump_back_by_one_for_a_moment(rush: RecordedRush) -> None:
    """The grant and its order agree: only the order of the fences is wrong."""
    rush.change("acquired", 2, fence=100)
    rush.happened.orders[2]["fence"] = 100
    rush.change_answers("buyer-2", fence=100)


@plant("false_release", locks=FENCED)
def a_release_names_another_token(rush: RecordedRush) -> None:
    rush.change("release", 2, token="token-1")


@plant("expired_hold", locks=LOCKED)
def releases_find_the_lock_expired(rush: RecordedRush) -> None:
    rush.change("released", outcome="expired")


@plant("expired_hold")
def releases_are_not_recorded(rush: RecordedRush) -> None:
    rush.forget("released")


@plant("leaked_key")
def a_key_is_left_on_the_server(rush: RecordedRush) -> Any:
    return {"leaked": ["lock:{redis:pause-token}:waiters"]}


@plant("wrong_lock")
def another_lock_is_used(rush: RecordedRush) -> None:
    rush.change("begins", lock="row-lock")


@plant("wrong_lock")
def the_lock_of_another_product_is_taken(rush: RecordedRush) -> None:
    rush.events("acquired")[0]["lock_name"] = "redis:pear"


# --- reads and commits ---------------------------------------------------------------------------


@plant("outside_request")
def the_commit_is_outside_of_its_request(rush: RecordedRush) -> None:
    rush.change("before_commit", 2, later=-9.5)


@plant("unlocked")
def a_node_commits_after_it_has_released(rush: RecordedRush) -> None:
    rush.change("after_commit", 2, later=4)


@plant("unlocked", locks=LOCKED)
def a_holder_reads_and_commits_in_two_holds(rush: RecordedRush) -> None:
    """It let go in between, and nobody else came: right by luck."""
    rush.at(2, 8, "release", "invoke", token="token-2")
    rush.at(2, 8.2, "released", outcome="released", token="token-2")
    rush.at(2, 8.4, "acquire", "invoke")
    rush.at(2, 8.6, "acquired", token="token-2b", fence=102, lock_name=f"{rush.lock}:pause-token")


@plant("stale_write")
def stale_writes_and_the_stock_put_right_afterwards(rush: RecordedRush) -> None:
    for number in range(rush.stock):
        sees(rush, number, 4)


@plant("stale_write", locks=EACH_WAY)
def everybody_saw_a_unit_of_another_sale_as_well(rush: RecordedRush) -> None:
    """A bucket of another sale in the sum, say: there were never so many."""
    for number in range(rush.stock):
        sees(rush, number, rush.stock - number + 1)


@plant("stale_write", locks=EACH_WAY)
def the_last_unit_was_sold_out_of_nothing(rush: RecordedRush) -> None:
    sees(rush, rush.stock - 1, 0)


@plant("stale_write", locks=("skip-locked", "reserve"))
def one_unit_is_sold_twice_and_another_is_lost(rush: RecordedRush) -> None:
    """The totals are right."""
    sees(rush, 1, rush.stock)


@plant("false_sold_out", locks=("redis", "row-lock", "buckets", "skip-locked"))
def a_node_sees_units_and_answers_sold_out(rush: RecordedRush) -> None:
    all_are_answered_at_the_end(rush)
    sees(rush, rush.buyers - 1, 2)


@plant("contradiction", locks=ALL)
def a_read_was_of_the_sale_before(rush: RecordedRush) -> None:
    for kind in SAW:
        rush.change(kind, 2, sale=6)


@plant("wrong_lock", locks=ALL)
def a_purchase_began_for_another_product(rush: RecordedRush) -> None:
    rush.change("begins", 2, product="pear")


@plant("contradiction")
def the_sale_is_not_recorded(rush: RecordedRush) -> None:
    for event in rush.happened.events:
        if event["by"] == "node":
            event.pop("sale", None)


@plant("contradiction", locks=("redis", "conditional", "buckets"))
def a_node_read_less_than_its_order_says(rush: RecordedRush) -> None:
    for kind in SAW:
        for event in rush.events(kind, 1):
            event["amount"] -= 1


@plant("contradiction")
def an_order_that_was_committed_is_committed_again(rush: RecordedRush) -> None:
    """Its buyer was in doubt, but the COMMIT was acknowledged, so the order must exist."""
    order = rush.happened.orders[1]["order"]
    rush.answer(1, "unknown")
    rush.at(1, 30, "after_read", amount=3, sale=7)
    rush.at(1, 32, "before_commit", "invoke", order=order, sale=7)
    rush.at(1, 33, "after_commit", sale=7)
    rush.asks_again(1)


# --- what is missing, or came at another time ----------------------------------------------------


@plant("unrecorded", locks=ALL)
def one_process_is_silent(rush: RecordedRush) -> None:
    rush.happened.events = [e for e in rush.happened.events if e.get("pid") != 13]


@plant("unrecorded")
def which_strategy_ran_is_not_recorded(rush: RecordedRush) -> None:
    rush.forget("begins")


@plant("unrecorded")
def two_nodes_have_swapped_their_orders(rush: RecordedRush) -> None:
    one, other = rush.events("before_commit")[:2]
    one["order"], other["order"] = other["order"], one["order"]


@plant("unrecorded")
def every_third_is_answered_sold_out_at_once(rush: RecordedRush) -> None:
    """The node never looks at the stock, and the totals come out right."""
    rush.happened.events = [
        e for e in rush.happened.events
        if e["by"] != "node" or e["attempt"] != "buyer-5" or e["f"] in {"arrives", "begins"}
    ]  # fmt: skip


@plant("commit_order")
def a_nodes_clock_is_ahead_inside_long_requests(rush: RecordedRush) -> None:
    all_are_answered_at_the_end(rush)
    for event in rush.happened.events:
        if event.get("pid") == 22:
            event["t"] += round(30e6)


@plant("outside_request", locks=ALL)
def a_node_looked_at_the_stock_of_nobody(rush: RecordedRush) -> None:
    rush.happened.reads(61, "a ghost", 1)


@plant("broken_history")
def a_line_of_the_history_is_damaged(rush: RecordedRush) -> None:
    damaged: Any = {"t": 0, "by": DAMAGED, "type": "fail", "f": "line", "what": "a broken line"}
    rush.happened.events.append(damaged)
