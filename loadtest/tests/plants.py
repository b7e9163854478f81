"""Violations to plant in a rush: in what its nodes recorded, its orders and its answers."""

from typing import Any

from loadtest.judge.history import DAMAGED
from loadtest.tests.recorded_rush import ALL, EACH_WAY, FENCED, LOCKED, RecordedRush, plant

#: What a node records of the stock that a purchase saw.
SAW = "after_read", "reserved"


def answer_all_at_the_end(rush: RecordedRush) -> None:
    """So nobody can say from the times alone what was gone when."""
    for event in rush.history.events:
        if event["by"] == "buyer":
            event["t"] = round((1 if event["type"] == "invoke" else 900) * 1e6)


def set_stock_seen(rush: RecordedRush, number: int, amount: int) -> None:
    """Change what a buyer saw, everywhere where it is recorded."""
    for kind in SAW:
        rush.change_node_events(kind, number, amount=amount)
    rush.change_sold_answers(f"buyer-{number}", stock_seen=amount)
    for order in rush.history.orders:
        if order["key"] == f"buyer-{number}":
            order["stock_seen"] = amount


# --- locks ---------------------------------------------------------------------------------------


@plant("unlocked")
def no_lock_though_the_database_is_exact(rush: RecordedRush) -> None:
    rush.remove_node_events("acquire", "acquired", "release", "released")


@plant("overlap")
def everybody_is_granted_the_lock_at_once(rush: RecordedRush) -> None:
    for kind, ms in {"acquired": 4.5, "acquire": 4.4}.items():
        rush.change_node_events(kind, t=round(ms * 1e6))
    for event in rush.history.events:
        if event["by"] == "buyer" and event["type"] == "invoke":
            event["t"] = round(1e6)


@plant("shared_token", "overlap")
def everybody_has_the_same_token(rush: RecordedRush) -> None:
    everybody_is_granted_the_lock_at_once(rush)
    for kind in ("acquired", "release", "released"):
        rush.change_node_events(kind, token="one")


@plant("shared_token", locks=LOCKED)
def a_grant_has_no_token(rush: RecordedRush) -> None:
    for number in (1, 2):
        for kind in ("acquired", "release", "released"):
            rush.change_node_events(kind, number, token="")


@plant("wrong_fence")
def orders_without_a_fence(rush: RecordedRush) -> None:
    for order in rush.history.orders:
        order["fence"] = None


@plant("wrong_fence")
def the_fence_of_another_grant(rush: RecordedRush) -> None:
    rush.history.orders[3]["fence"] += 50


@plant("fence_fell", locks=FENCED)
def fences_jump_back_by_one_for_a_moment(rush: RecordedRush) -> None:
    """The grant and its order agree: only the order of the fences is wrong."""
    rush.change_node_events("acquired", 2, fence=100)
    rush.history.orders[2]["fence"] = 100
    rush.change_sold_answers("buyer-2", fence=100)


@plant("false_release", locks=FENCED)
def a_release_names_another_token(rush: RecordedRush) -> None:
    rush.change_node_events("release", 2, token="token-1")


@plant("expired_hold", locks=LOCKED)
def releases_find_the_lock_expired(rush: RecordedRush) -> None:
    rush.change_node_events("released", outcome="expired")


@plant("expired_hold")
def releases_are_not_recorded(rush: RecordedRush) -> None:
    rush.remove_node_events("released")


@plant("leaked_key")
def a_key_is_left_on_the_server(rush: RecordedRush) -> Any:
    return {"leaked_keys": ["lock:{redis:pause-token}:waiters"]}


@plant("wrong_lock")
def another_lock_is_used(rush: RecordedRush) -> None:
    rush.change_node_events("begins", lock="row-lock")


@plant("wrong_lock")
def the_lock_of_another_product_is_taken(rush: RecordedRush) -> None:
    rush.node_events("acquired")[0]["lock_name"] = "redis:pear"


# --- reads and commits ---------------------------------------------------------------------------


@plant("outside_request")
def the_commit_is_outside_of_its_request(rush: RecordedRush) -> None:
    rush.change_node_events("before_commit", 2, later_ms=-9.5)


@plant("unlocked")
def a_node_commits_after_it_has_released(rush: RecordedRush) -> None:
    rush.change_node_events("after_commit", 2, later_ms=4)


@plant("unlocked", locks=LOCKED)
def a_holder_reads_and_commits_in_two_holds(rush: RecordedRush) -> None:
    """It let go in between, and nobody else came: right by luck."""
    rush.record(2, 8, "release", "invoke", token="token-2")
    rush.record(2, 8.2, "released", outcome="released", token="token-2")
    rush.record(2, 8.4, "acquire", "invoke")
    rush.record(
        2, 8.6, "acquired", token="token-2b", fence=102, lock_name=f"{rush.lock}:pause-token"
    )


@plant("stale_write")
def stale_writes_and_the_stock_put_right_afterwards(rush: RecordedRush) -> None:
    for number in range(rush.stock):
        set_stock_seen(rush, number, 4)


@plant("stale_write", locks=EACH_WAY)
def everybody_saw_a_unit_of_another_sale_as_well(rush: RecordedRush) -> None:
    """A bucket of another sale in the sum, say: there were never so many."""
    for number in range(rush.stock):
        set_stock_seen(rush, number, rush.stock - number + 1)


@plant("stale_write", locks=EACH_WAY)
def the_last_unit_was_sold_out_of_nothing(rush: RecordedRush) -> None:
    set_stock_seen(rush, rush.stock - 1, 0)


@plant("stale_write", locks=("skip-locked", "reserve"))
def one_unit_is_sold_twice_and_another_is_lost(rush: RecordedRush) -> None:
    """The totals are right."""
    set_stock_seen(rush, 1, rush.stock)


@plant("false_sold_out", locks=("redis", "row-lock", "buckets", "skip-locked"))
def a_node_sees_units_and_answers_sold_out(rush: RecordedRush) -> None:
    answer_all_at_the_end(rush)
    set_stock_seen(rush, rush.buyers - 1, 2)


@plant("contradiction", locks=ALL)
def a_read_was_of_the_sale_before(rush: RecordedRush) -> None:
    for kind in SAW:
        rush.change_node_events(kind, 2, sale=6)


@plant("wrong_lock", locks=ALL)
def a_purchase_began_for_another_product(rush: RecordedRush) -> None:
    rush.change_node_events("begins", 2, product="pear")


@plant("contradiction")
def the_sale_is_not_recorded(rush: RecordedRush) -> None:
    for event in rush.history.events:
        if event["by"] == "node":
            event.pop("sale", None)


@plant("contradiction", locks=("redis", "conditional", "buckets"))
def a_node_read_less_than_its_order_says(rush: RecordedRush) -> None:
    for kind in SAW:
        for event in rush.node_events(kind, 1):
            event["amount"] -= 1


@plant("contradiction")
def an_order_that_was_committed_is_committed_again(rush: RecordedRush) -> None:
    """Its buyer was in doubt, but the COMMIT was acknowledged, so the order must exist."""
    order = rush.history.orders[1]["order"]
    rush.change_answer(1, "unknown")
    rush.record(1, 30, "after_read", amount=3, sale=7)
    rush.record(1, 32, "before_commit", "invoke", order=order, sale=7)
    rush.record(1, 33, "after_commit", sale=7)
    rush.ask_again(1)


# --- what is missing, or came at another time ----------------------------------------------------


@plant("unrecorded", locks=ALL)
def one_process_is_silent(rush: RecordedRush) -> None:
    rush.history.events = [e for e in rush.history.events if e.get("pid") != 13]


@plant("unrecorded")
def which_strategy_ran_is_not_recorded(rush: RecordedRush) -> None:
    rush.remove_node_events("begins")


@plant("unrecorded")
def two_nodes_have_swapped_their_orders(rush: RecordedRush) -> None:
    one, other = rush.node_events("before_commit")[:2]
    one["order"], other["order"] = other["order"], one["order"]


@plant("unrecorded")
def every_third_is_answered_sold_out_at_once(rush: RecordedRush) -> None:
    """The node never looks at the stock, and the totals come out right."""
    rush.history.events = [
        e for e in rush.history.events
        if e["by"] != "node" or e["attempt"] != "buyer-5" or e["f"] in {"arrives", "begins"}
    ]  # fmt: skip


@plant("commit_order")
def a_nodes_clock_is_ahead_inside_long_requests(rush: RecordedRush) -> None:
    answer_all_at_the_end(rush)
    for event in rush.history.events:
        if event.get("pid") == 22:
            event["t"] += round(30e6)


@plant("outside_request", locks=ALL)
def a_node_looked_at_the_stock_of_nobody(rush: RecordedRush) -> None:
    rush.history.read(61, "a ghost", 1)


@plant("broken_history")
def a_line_of_the_history_is_damaged(rush: RecordedRush) -> None:
    damaged: Any = {"t": 0, "by": DAMAGED, "type": "fail", "f": "line", "what": "a broken line"}
    rush.history.events.append(damaged)


# --- the sale ------------------------------------------------------------------------------------


@plant("wrong_stock", locks=ALL)
def the_sale_sold_one_less_and_says_that_it_opened_so(rush: RecordedRush) -> Any:
    return {"opening_stock": rush.stock - 1}


@plant("lost_update", locks=ALL)
def a_unit_came_back_after_the_sale(rush: RecordedRush) -> None:
    rush.history.final_stock = 1


# --- orders --------------------------------------------------------------------------------------


@plant("wrong_amount", locks=ALL)
def one_buyer_gets_two_units_in_one_order(rush: RecordedRush) -> None:
    """And a fourth buyer is told sold_out: three orders take four units."""
    rush.history.orders[0]["amount"] = 2
    rush.history.final_stock = 0
    del rush.history.orders[3]


@plant("wrong_amount", locks=ALL)
def an_order_of_minus_one_unit_hides_an_oversell(rush: RecordedRush) -> None:
    """Two buyers too many, and two orders that count for nothing: the sum is right."""
    for number, amount in ((4, 1), (5, -1)):
        key = f"buyer-{number}"
        order = {"order": 50 + number, "key": key, "lock": rush.lock, "fence": None}
        rush.history.orders.append({**order, "stock_seen": 1, "buyer": key, "amount": amount})


@plant("lost_ack", "double_number", locks=ALL)
def orders_are_numbered_twice(rush: RecordedRush) -> None:
    rush.history.orders[2]["order"] = rush.history.orders[1]["order"]


@plant("contradiction", locks=ALL)
def one_order_is_of_another_product(rush: RecordedRush) -> None:
    rush.history.orders[2]["product"] = "pear"


@plant("wrong_lock")
def orders_name_another_lock(rush: RecordedRush) -> None:
    rush.history.orders[0]["lock"] = "row-lock"


@plant("contradiction")
def orders_carry_the_names_of_others(rush: RecordedRush) -> None:
    rush.history.orders[0]["buyer"] = "buyer-1"


@plant("double_order", locks=ALL)
def an_order_is_of_a_buyer_with_another_key(rush: RecordedRush) -> None:
    rush.history.orders[1]["key"] = "buyer-0"


@plant("double_order", locks=ALL)
def a_buyer_is_answered_with_two_orders_and_has_one(rush: RecordedRush) -> None:
    rush.ask_again(1)
    rush.history.events[-1]["order"] = 99


@plant("ghost_order", locks=ALL)
def an_order_is_of_a_stranger(rush: RecordedRush) -> None:
    rush.history.orders[1] |= {"key": "nobody", "buyer": "nobody"}


@plant("foreign_key", locks=EACH_WAY)
def somebody_else_buys_through_a_worker(rush: RecordedRush) -> Any:
    """Its answer is reported with those of the buyers, under a key that none of them has."""
    key, to = "buyer-1", "somebody"
    for event in rush.history.events:
        if event.get("attempt") == key:
            event["attempt"] = to
    rush.history.orders[1] |= {"key": to, "buyer": to}
    keys = [one for one in rush.keys if one != key]
    return {"buyer_keys": keys, "arrivals": len(keys)}


# --- answers -------------------------------------------------------------------------------------


@plant("")
def answers_are_not_recorded(rush: RecordedRush) -> None:
    rush.history.events = [
        e for e in rush.history.events if e["by"] == "node" or e["type"] == "invoke"
    ]


@plant("", locks=ALL)
def the_last_buyers_were_never_let_in(rush: RecordedRush) -> None:
    """The sale was declared over by a door that no node knows of."""
    rush.change_answer(5, "closed")


@plant("contradiction", locks=ALL)
def answers_lie_about_the_stock(rush: RecordedRush) -> None:
    rush.change_sold_answers(stock_seen=500)


@plant("contradiction")
def buyers_are_answered_with_the_fence_of_another(rush: RecordedRush) -> None:
    rush.change_sold_answers(fence=100)


@plant("contradiction", locks=LOCKED)
def answers_lie_about_the_release(rush: RecordedRush) -> None:
    rush.change_sold_answers("buyer-1", released="expired")


@plant("wrong_time", locks=EACH_WAY)
def an_order_is_dated_yesterday(rush: RecordedRush) -> None:
    rush.history.orders[1]["time"] = "2026-01-01T03:04:05+00:00"


@plant("contradiction")
def buyers_are_answered_with_the_sale_before(rush: RecordedRush) -> None:
    rush.change_sold_answers(sold_in=6)


@plant("lost_ack", locks=ALL)
def two_buyers_are_answered_with_one_order(rush: RecordedRush) -> None:
    """Buyer 5 was refused, and is shown the order of buyer 1."""
    rush.change_answer(5, "sold", order=rush.history.orders[1]["order"], sold_in=7)


@plant("outside_request", locks=ALL)
def an_answer_is_recorded_before_its_request(rush: RecordedRush) -> None:
    """So the request has none, and its buyer no last answer."""
    for event in rush.history.events:
        if event["by"] == "buyer" and event["attempt"] == "buyer-2" and event["type"] != "invoke":
            event["t"] = 1


@plant("outside_request", locks=ALL)
def an_answer_says_sold_where_no_request_is_known(rush: RecordedRush) -> None:
    rush.history.answer(119, "buyer-77", "sold", 31)


# --- those who ask again -------------------------------------------------------------------------


@plant("false_refusal", locks=ALL)
def busy_but_sold_and_the_retry_replays(rush: RecordedRush) -> None:
    rush.change_answer(1, "busy")
    rush.ask_again(1)


@plant("false_refusal", locks=ALL)
def busy_but_sold_and_the_retry_calls_it_new(rush: RecordedRush) -> None:
    rush.change_answer(1, "busy")
    rush.ask_again(1, replayed=False)


@plant("false_refusal", locks=EACH_WAY)
def the_first_answer_to_a_buyer_is_a_replay(rush: RecordedRush) -> None:
    rush.change_answer(1, "sold", order=rush.history.orders[1]["order"], replayed=True, sold_in=7)


@plant("contradiction", locks=("redis", "row-lock", "conditional"))
def a_replay_names_another_sale(rush: RecordedRush) -> None:
    """The answer was lost, the buyer asked again, and is told of its order in the next sale."""
    rush.change_answer(1, "unknown")
    rush.ask_again(1, sold_in=8)


@plant("unrecorded", locks=EACH_WAY)
def a_second_request_is_refused_by_a_node_that_recorded_nothing(rush: RecordedRush) -> None:
    """Its first one was recorded, and answered busy."""
    rush.change_answer(5, "busy")
    rush.history.ask(200, "buyer-5")
    rush.history.answer(210, "buyer-5", "sold_out")
