"""Plants: functions that add a violation to a recorded rush, whose sale was exact before.

The arguments of @violates_rules are the rules of the judge that must find the violation. With
NO_RULE no rule need find it, but the verdict must not be `exact`.

In the rush six buyers, 0 to 5, try to buy four units. Buyers 0 to 3 get the orders 31 to 34, and
buyers 4 and 5 are answered `sold_out`. The turn of buyer N begins at 20 * N ms. See
RecordedRush.serve() for the times of the events in a turn.
"""

from typing import Any

from loadtest.judge.history import DAMAGED
from loadtest.tests.history_builder import PRODUCT
from loadtest.tests.recorded_rush import (
    ALL_STRATEGIES,
    FIRST_FENCE,
    NO_RULE,
    SALE,
    SAMPLE_STRATEGIES,
    STRATEGIES_WITH_FENCE,
    STRATEGIES_WITH_LOCK,
    RecordedRush,
    violates_rules,
)

#: The events whose field `amount` is the stock that a purchase saw.
STOCK_EVENTS = ("after_read", "reserved")


def answer_all_at_the_end(rush: RecordedRush) -> None:
    """Let all requests be sent at 1 ms and answered at 900 ms.

    Their times then do not show in which order the buyers bought.
    """
    for event in rush.history.events:
        if event["by"] == "buyer":
            ms = 1 if event["type"] == "invoke" else 900
            event["t"] = round(ms * 1e6)


def set_stock_seen(rush: RecordedRush, number: int, amount: int) -> None:
    """Set the stock that a buyer read: in its node's events, in its answer and in its order."""
    for kind in STOCK_EVENTS:
        rush.change_node_events(kind, number, amount=amount)
    rush.change_sold_answers(f"buyer-{number}", stock_seen=amount)
    for order in rush.history.orders:
        if order["key"] == f"buyer-{number}":
            order["stock_seen"] = amount


# --- locks ---------------------------------------------------------------------------------------


@violates_rules("unlocked")
def leave_out_the_lock(rush: RecordedRush) -> None:
    """Remove the events of the lock, but no order."""
    rush.remove_node_events("acquire", "acquired", "release", "released")


@violates_rules("overlap")
def let_all_buyers_hold_the_lock_at_once(rush: RecordedRush) -> None:
    """Let all buyers send their requests at 1 ms, and get the lock at 4.5 ms."""
    rush.change_node_events("acquire", t=4_400_000)  # in nanoseconds
    rush.change_node_events("acquired", t=4_500_000)
    for event in rush.history.events:
        if event["by"] == "buyer" and event["type"] == "invoke":
            event["t"] = 1_000_000


@violates_rules("shared_token", "overlap")
def grant_one_token_to_all(rush: RecordedRush) -> None:
    """Let all buyers hold the lock at the same time, each with the same token."""
    let_all_buyers_hold_the_lock_at_once(rush)
    for kind in ("acquired", "release", "released"):
        rush.change_node_events(kind, token="one")


@violates_rules("shared_token", locks=STRATEGIES_WITH_LOCK)
def grant_an_empty_token(rush: RecordedRush) -> None:
    """Let buyers 1 and 2 get and release the lock with an empty token."""
    for number in (1, 2):
        for kind in ("acquired", "release", "released"):
            rush.change_node_events(kind, number, token="")


@violates_rules("wrong_fence")
def remove_fences_of_orders(rush: RecordedRush) -> None:
    """Remove the fence from every order."""
    for order in rush.history.orders:
        order["fence"] = None


@violates_rules("wrong_fence")
def order_with_an_unknown_fence(rush: RecordedRush) -> None:
    """Give the order of buyer 3 a fence that no buyer got with the lock."""
    rush.history.orders[3]["fence"] += 50  # higher than every fence of the rush


@violates_rules("fence_fell", locks=STRATEGIES_WITH_FENCE)
def lower_one_fence(rush: RecordedRush) -> None:
    """Let buyer 2 have the fence of buyer 0, which is lower than that of buyer 1.

    The fence is changed where the lock is granted, in the order and in the answer.
    """
    rush.change_node_events("acquired", 2, fence=FIRST_FENCE)
    rush.history.orders[2]["fence"] = FIRST_FENCE
    rush.change_sold_answers("buyer-2", fence=FIRST_FENCE)


@violates_rules("false_release", locks=STRATEGIES_WITH_FENCE)
def release_another_token(rush: RecordedRush) -> None:
    """Let buyer 2 release the lock with the token of buyer 1."""
    rush.change_node_events("release", 2, token="token-1")


@violates_rules("expired_hold", locks=STRATEGIES_WITH_LOCK)
def expire_every_lock(rush: RecordedRush) -> None:
    """Let every release fail because its lock has expired, although no fault disturbed the rush."""
    rush.change_node_events("released", outcome="expired")


@violates_rules("expired_hold")
def remove_ends_of_releases(rush: RecordedRush) -> None:
    """Remove the events `released`, which show whether a lock was released or had expired."""
    rush.remove_node_events("released")


@violates_rules("leaked_key")
def leak_key(rush: RecordedRush) -> Any:
    """Return an argument of Judgement(): a key of the lock is left in Redis after the rush."""
    return {"leaked_keys": ["lock:{redis:pause-token}:waiters"]}


@violates_rules("wrong_lock")
def serve_under_another_strategy(rush: RecordedRush) -> None:
    """Let the nodes record that they serve every purchase under the strategy `row-lock`."""
    rush.change_node_events("begins", lock="row-lock")


@violates_rules("wrong_lock")
def take_lock_of_another_product(rush: RecordedRush) -> None:
    """Let buyer 0 get the lock of another product, `pear`."""
    rush.node_events("acquired")[0]["lock_name"] = "redis:pear"


# --- reads and commits ---------------------------------------------------------------------------


@violates_rules("outside_request")
def commit_before_the_request(rush: RecordedRush) -> None:
    """Let a node begin the COMMIT for buyer 2 before the buyer sends its request."""
    rush.change_node_events("before_commit", 2, shift_ms=-9.5)  # from 10 to 0.5 ms; request: 1 ms


@violates_rules("unlocked")
def commit_after_the_release(rush: RecordedRush) -> None:
    """Let the COMMIT for buyer 2 end after the lock is released."""
    rush.change_node_events("after_commit", 2, shift_ms=4)  # from 12 to 16 ms; release: 13 to 14 ms


@violates_rules("unlocked", locks=STRATEGIES_WITH_LOCK)
def release_the_lock_before_the_commit(rush: RecordedRush) -> None:
    """Let buyer 2 release the lock after its read, and acquire it again before its commit.

    No other buyer buys meanwhile, so the number of orders and the stock at the end are correct.
    """
    new_fence = FIRST_FENCE + 2
    rush.record(2, 8, "release", "invoke", token="token-2")
    rush.record(2, 8.2, "released", outcome="released", token="token-2")
    rush.record(2, 8.4, "acquire", "invoke")
    rush.record(
        2, 8.6, "acquired", token="token-2b", fence=new_fence, lock_name=f"{rush.lock}:{PRODUCT}"
    )


@violates_rules("stale_write")
def read_the_full_stock_in_each_purchase(rush: RecordedRush) -> None:
    """Let every buyer read the full stock, although earlier buyers have bought units.

    The stock at the end is correct.
    """
    for number in range(rush.stock):
        set_stock_seen(rush, number, rush.stock)


@violates_rules("stale_write", locks=SAMPLE_STRATEGIES)
def read_one_unit_too_many(rush: RecordedRush) -> None:
    """Let every buyer read one unit too many. Buyer 0 reads 5 units, although the sale has 4."""
    for number in range(rush.stock):
        set_stock_seen(rush, number, rush.stock - number + 1)


@violates_rules("stale_write", locks=SAMPLE_STRATEGIES)
def sell_a_unit_of_an_empty_stock(rush: RecordedRush) -> None:
    """Let the buyer of the last unit read a stock of 0, and still be sold the unit."""
    set_stock_seen(rush, rush.stock - 1, 0)


@violates_rules("stale_write", locks=("skip-locked", "reserve"))
def sell_one_unit_twice(rush: RecordedRush) -> None:
    """Let buyer 1 read the full stock, as buyer 0 did.

    Under these strategies, the stock that is read for an order is the number of its unit.
    """
    set_stock_seen(rush, 1, rush.stock)


@violates_rules("false_sold_out", locks=("redis", "row-lock", "buckets", "skip-locked"))
def answer_sold_out_with_units_left(rush: RecordedRush) -> None:
    """Let the last buyer read a stock of 2, although it is answered `sold_out`.

    All answers are sent after the last unit was sold, so only the read contradicts `sold_out`.
    """
    answer_all_at_the_end(rush)
    set_stock_seen(rush, rush.buyers - 1, 2)


@violates_rules("contradiction", locks=ALL_STRATEGIES)
def read_the_previous_sale(rush: RecordedRush) -> None:
    """Let buyer 2 read the stock of the previous sale."""
    for kind in STOCK_EVENTS:
        rush.change_node_events(kind, 2, sale=SALE - 1)


@violates_rules("wrong_lock", locks=ALL_STRATEGIES)
def begin_for_another_product(rush: RecordedRush) -> None:
    """Let a node record that buyer 2 buys another product, `pear`."""
    rush.change_node_events("begins", 2, product="pear")


@violates_rules("contradiction")
def remove_the_sale_number_from_events(rush: RecordedRush) -> None:
    """Remove the number of the sale from the nodes' events."""
    for event in rush.history.events:
        if event["by"] == "node":
            event.pop("sale", None)


@violates_rules("contradiction", locks=("redis", "conditional", "buckets"))
def read_less_than_the_order_shows(rush: RecordedRush) -> None:
    """Let buyer 1 read a stock that is one less than the field `stock_seen` of its order."""
    for kind in STOCK_EVENTS:
        for event in rush.node_events(kind, 1):
            event["amount"] -= 1


@violates_rules("contradiction")
def commit_an_order_twice(rush: RecordedRush) -> None:
    """Record a second COMMIT of buyer 1's order, although the first one succeeded.

    The answer to the buyer's first request is lost, and its second request is answered `sold`. The
    second COMMIT is between the two requests, after the turn of the buyer.
    """
    order = rush.history.orders[1]["order"]
    rush.change_answer(1, "unknown")
    rush.record(1, 30, "after_read", amount=3, sale=SALE)
    rush.record(1, 32, "before_commit", "invoke", order=order, sale=SALE)
    rush.record(1, 33, "after_commit", sale=SALE)
    rush.repeat_request(1)


# --- events that are missing, or happened at another time ----------------------------------------


@violates_rules("unrecorded", locks=ALL_STRATEGIES)
def remove_events_of_one_process(rush: RecordedRush) -> None:
    """Remove the events of process 13, one of the two processes of node A."""
    rush.history.events = [event for event in rush.history.events if event.get("pid") != 13]


@violates_rules("unrecorded")
def remove_the_strategy_from_events(rush: RecordedRush) -> None:
    """Remove the events `begins`, the only ones that have the strategy."""
    rush.remove_node_events("begins")


@violates_rules("unrecorded")
def swap_orders_of_two_nodes(rush: RecordedRush) -> None:
    """Let node A, which served buyer 0, record the order of buyer 1, and node B that of buyer 0."""
    first, second = rush.node_events("before_commit")[:2]
    first["order"], second["order"] = second["order"], first["order"]


@violates_rules("unrecorded")
def answer_sold_out_without_a_read(rush: RecordedRush) -> None:
    """Let a node answer `sold_out` to the last buyer without taking the lock or reading the stock.

    Only the arrival of its request and the beginning of its purchase are recorded.
    """
    last_buyer = rush.keys[-1]
    for event in list(rush.history.events):
        is_of_last_buyer = event["by"] == "node" and event["attempt"] == last_buyer
        if is_of_last_buyer and event["f"] not in {"arrives", "begins"}:
            rush.history.events.remove(event)


@violates_rules("commit_order")
def set_clock_of_node_b_ahead(rush: RecordedRush) -> None:
    """Add 30 ms to the times of all events of node B, as if its clock were ahead."""
    # All requests last for the whole rush, so that their times do not contradict the shifted ones.
    answer_all_at_the_end(rush)
    for event in rush.history.events:
        if event["by"] == "node" and event["node"] == "B":
            event["t"] += 30_000_000  # nanoseconds


@violates_rules("outside_request", locks=ALL_STRATEGIES)
def read_for_an_unknown_key(rush: RecordedRush) -> None:
    """Record that a node read the stock for a key that no buyer sent."""
    rush.history.read(61, "a ghost", 1)


@violates_rules("broken_history")
def damage_a_line(rush: RecordedRush) -> None:
    """Add an event that stands for a damaged line of the history, as the judge's reader does."""
    damaged_line: Any = {
        "t": 0,
        "by": DAMAGED,
        "type": "fail",
        "f": "line",
        "what": "a broken line",
    }
    rush.history.events.append(damaged_line)


# --- the sale ------------------------------------------------------------------------------------


@violates_rules("wrong_stock", locks=ALL_STRATEGIES)
def open_with_too_few_units(rush: RecordedRush) -> Any:
    """Return an argument of Judgement(): the sale began with one unit less than was requested."""
    return {"opening_stock": rush.stock - 1}


@violates_rules("lost_update", locks=ALL_STRATEGIES)
def leave_a_sold_unit_in_stock(rush: RecordedRush) -> None:
    """Let the shop show a stock of 1 at the end, although four orders took all four units."""
    rush.history.final_stock = 1


# --- orders --------------------------------------------------------------------------------------


@violates_rules("wrong_amount", locks=ALL_STRATEGIES)
def sell_two_units_in_one_order(rush: RecordedRush) -> None:
    """Let the order of buyer 0 be for two units, and remove the order of buyer 3.

    So three orders are for four units. Buyer 3 is still answered `sold`.
    """
    rush.history.orders[0]["amount"] = 2
    rush.history.final_stock = 0  # by default it would be 1: four units less three orders
    del rush.history.orders[3]


@violates_rules("wrong_amount", locks=ALL_STRATEGIES)
def hide_an_oversell_by_a_negative_order(rush: RecordedRush) -> None:
    """Add two surplus orders, of 1 and of -1 units, so that the sum of all amounts is correct."""
    for number, amount in ((4, 1), (5, -1)):
        key = f"buyer-{number}"
        unused_number = 50 + number
        order = {"order": unused_number, "key": key, "lock": rush.lock, "fence": None}
        rush.history.orders.append({**order, "stock_seen": 1, "buyer": key, "amount": amount})


@violates_rules("lost_ack", "double_number", locks=ALL_STRATEGIES)
def give_two_orders_one_number(rush: RecordedRush) -> None:
    """Give the order of buyer 2 the number of the order of buyer 1."""
    rush.history.orders[2]["order"] = rush.history.orders[1]["order"]


@violates_rules("contradiction", locks=ALL_STRATEGIES)
def order_another_product(rush: RecordedRush) -> None:
    """Let the order of buyer 2 be for another product, `pear`."""
    rush.history.orders[2]["product"] = "pear"


@violates_rules("wrong_lock")
def order_under_another_strategy(rush: RecordedRush) -> None:
    """Let the order of buyer 0 have the strategy `row-lock`."""
    rush.history.orders[0]["lock"] = "row-lock"


@violates_rules("contradiction")
def order_for_another_buyer(rush: RecordedRush) -> None:
    """Let the order with the idempotency key of buyer 0 belong to buyer 1."""
    rush.history.orders[0]["buyer"] = "buyer-1"


@violates_rules("double_order", locks=ALL_STRATEGIES)
def give_two_orders_one_key(rush: RecordedRush) -> None:
    """Give the order of buyer 1 the idempotency key of buyer 0."""
    rush.history.orders[1]["key"] = "buyer-0"


@violates_rules("double_order", locks=ALL_STRATEGIES)
def answer_with_another_order(rush: RecordedRush) -> None:
    """Answer the repeated request of buyer 1 with another order than that of the first answer."""
    other_order = 99
    rush.repeat_request(1, order=other_order)


@violates_rules("ghost_order", locks=ALL_STRATEGIES)
def sell_to_a_stranger(rush: RecordedRush) -> None:
    """Give the order of buyer 1 to a buyer who sent no request."""
    rush.history.orders[1] |= {"key": "stranger", "buyer": "stranger"}


@violates_rules("foreign_key", locks=SAMPLE_STRATEGIES)
def buy_with_a_foreign_key(rush: RecordedRush) -> Any:
    """Let the request and the order of buyer 1 have a key that belongs to no buyer of the rush.

    Return arguments of Judgement(): the keys and the number of all buyers except buyer 1.
    """
    foreign_key = "stranger"
    for event in rush.history.events:
        if event.get("attempt") == "buyer-1":
            event["attempt"] = foreign_key
    rush.history.orders[1] |= {"key": foreign_key, "buyer": foreign_key}
    keys = [key for key in rush.keys if key != "buyer-1"]
    return {"buyer_keys": keys, "arrivals": len(keys)}


# --- answers -------------------------------------------------------------------------------------


@violates_rules(NO_RULE)
def remove_answers(rush: RecordedRush) -> None:
    """Remove the answers to all buyers."""
    rush.history.events = [
        event for event in rush.history.events if event["by"] == "node" or event["type"] == "invoke"
    ]


@violates_rules(NO_RULE, locks=ALL_STRATEGIES)
def answer_closed_to_the_last_buyer(rush: RecordedRush) -> None:
    """Answer `closed` to the last buyer, although the sale was not closed."""
    rush.change_answer(rush.buyers - 1, "closed")


@violates_rules("contradiction", locks=ALL_STRATEGIES)
def answer_with_another_stock(rush: RecordedRush) -> None:
    """Let every answer `sold` have a stock of 500, which no node read."""
    rush.change_sold_answers(stock_seen=500)


@violates_rules("contradiction")
def answer_with_another_fence(rush: RecordedRush) -> None:
    """Let every answer `sold` have the fence of buyer 0."""
    rush.change_sold_answers(fence=FIRST_FENCE)


@violates_rules("contradiction", locks=STRATEGIES_WITH_LOCK)
def answer_that_the_lock_expired(rush: RecordedRush) -> None:
    """Answer to buyer 1 that its lock had expired, although its node recorded the release."""
    rush.change_sold_answers("buyer-1", released="expired")


@violates_rules("wrong_time", locks=SAMPLE_STRATEGIES)
def date_an_order_yesterday(rush: RecordedRush) -> None:
    """Let the time of buyer 1's order be a day too early."""
    rush.history.orders[1]["time"] = "2026-01-01T03:04:05+00:00"


@violates_rules("contradiction")
def answer_with_the_previous_sale(rush: RecordedRush) -> None:
    """Let every answer `sold` have the number of the previous sale."""
    rush.change_sold_answers(sold_in=SALE - 1)


@violates_rules("lost_ack", locks=ALL_STRATEGIES)
def answer_two_buyers_with_one_order(rush: RecordedRush) -> None:
    """Answer `sold` to buyer 5, with the order of buyer 1, although there was no unit left."""
    rush.change_answer(5, "sold", order=rush.history.orders[1]["order"], sold_in=SALE)


@violates_rules("wrong_answer", locks=ALL_STRATEGIES)
def answer_before_the_request(rush: RecordedRush) -> None:
    """Record the answer to buyer 2 at 1 ns, before its request was sent."""
    for event in rush.history.events:
        if event["by"] == "buyer" and event["attempt"] == "buyer-2" and event["type"] != "invoke":
            event["t"] = 1


@violates_rules("wrong_answer", locks=ALL_STRATEGIES)
def answer_without_a_request(rush: RecordedRush) -> None:
    """Record an answer to a buyer who sent no request."""
    rush.history.answer(119, "buyer-77", "sold", rush.history.first_order)


# --- retries -------------------------------------------------------------------------------------


@violates_rules("false_refusal", locks=ALL_STRATEGIES)
def answer_busy_and_replay_the_order(rush: RecordedRush) -> None:
    """Answer `busy` to buyer 1, whose purchase succeeded.

    Answer its repeated request with the order of that purchase, as one that existed already.
    """
    rush.change_answer(1, "busy")
    rush.repeat_request(1)


@violates_rules("false_refusal", locks=ALL_STRATEGIES)
def answer_busy_and_sell_again(rush: RecordedRush) -> None:
    """Answer `busy` to buyer 1, whose purchase succeeded.

    Answer its repeated request with the order of that purchase, as if it were a new one.
    """
    rush.change_answer(1, "busy")
    rush.repeat_request(1, replayed=False)


@violates_rules("false_refusal", locks=SAMPLE_STRATEGIES)
def replay_in_the_first_answer(rush: RecordedRush) -> None:
    """Mark the answer to buyer 1's first request as a replay: its order existed already."""
    order = rush.history.orders[1]["order"]
    rush.change_answer(1, "sold", order=order, replayed=True, sold_in=SALE)


@violates_rules("contradiction", locks=("redis", "row-lock", "conditional"))
def replay_in_another_sale(rush: RecordedRush) -> None:
    """Lose the answer to buyer 1. Answer its repeated request with the number of the next sale."""
    rush.change_answer(1, "unknown")
    rush.repeat_request(1, sold_in=SALE + 1)


@violates_rules("unrecorded", locks=SAMPLE_STRATEGIES)
def refuse_without_a_record(rush: RecordedRush) -> None:
    """Let the last buyer repeat its request, of which its node records no event.

    The first request, whose events are recorded, is answered `busy`, and the repeated one
    `sold_out`.
    """
    last_buyer = rush.buyers - 1
    rush.change_answer(last_buyer, "busy")
    rush.history.request(200, f"buyer-{last_buyer}")
    rush.history.answer(210, f"buyer-{last_buyer}", "sold_out")
