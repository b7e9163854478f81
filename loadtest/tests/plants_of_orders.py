"""Violations to plant in the orders of a rush, and in what its buyers were answered."""

from typing import Any

from loadtest.tests.recorded import ALL, EACH_WAY, RecordedRush, plant


@plant("wrong_stock", locks=ALL)
def the_sale_sold_one_less_and_says_that_it_opened_so(rush: RecordedRush) -> Any:
    return {"opened": rush.stock - 1}


@plant("lost_update", locks=ALL)
def a_unit_came_back_after_the_sale(rush: RecordedRush) -> None:
    rush.happened.shelf = 1


# --- orders --------------------------------------------------------------------------------------


@plant("wrong_amount", locks=ALL)
def one_buyer_gets_two_units_in_one_order(rush: RecordedRush) -> None:
    """And a fourth buyer is told sold_out: three orders take four units."""
    rush.happened.orders[0]["amount"] = 2
    rush.happened.shelf = 0
    del rush.happened.orders[3]


@plant("wrong_amount", locks=ALL)
def an_order_of_minus_one_unit_hides_an_oversell(rush: RecordedRush) -> None:
    """Two buyers too many, and two orders that count for nothing: the sum is right."""
    for number, amount in ((4, 1), (5, -1)):
        key = f"buyer-{number}"
        order = {"order": 50 + number, "key": key, "lock": rush.lock, "fence": None}
        rush.happened.orders.append({**order, "stock_seen": 1, "buyer": key, "amount": amount})


@plant("lost_ack", locks=ALL)
def orders_are_numbered_twice(rush: RecordedRush) -> None:
    rush.happened.orders[2]["order"] = rush.happened.orders[1]["order"]


@plant("contradiction", locks=ALL)
def one_order_is_of_another_product(rush: RecordedRush) -> None:
    rush.happened.orders[2]["product"] = "pear"


@plant("wrong_lock")
def orders_name_another_lock(rush: RecordedRush) -> None:
    rush.happened.orders[0]["lock"] = "row-lock"


@plant("contradiction")
def orders_carry_the_names_of_others(rush: RecordedRush) -> None:
    rush.happened.orders[0]["buyer"] = "buyer-1"


@plant("double_order", locks=ALL)
def an_order_is_of_a_buyer_with_another_key(rush: RecordedRush) -> None:
    rush.happened.orders[1]["key"] = "buyer-0"


@plant("double_order", locks=ALL)
def a_buyer_is_answered_with_two_orders_and_has_one(rush: RecordedRush) -> None:
    rush.asks_again(1)
    rush.happened.events[-1]["order"] = 99


@plant("ghost_order", locks=ALL)
def an_order_is_of_a_stranger(rush: RecordedRush) -> None:
    rush.happened.orders[1] |= {"key": "nobody", "buyer": "nobody"}


@plant("foreign_key", locks=EACH_WAY)
def somebody_else_buys_through_a_worker(rush: RecordedRush) -> Any:
    """Its answer is reported with those of the buyers, under a key that none of them has."""
    key, to = "buyer-1", "somebody"
    for event in rush.happened.events:
        if event.get("attempt") == key:
            event["attempt"] = to
    rush.happened.orders[1] |= {"key": to, "buyer": to}
    keys = [one for one in rush.keys if one != key]
    return {"asked": {"buyers": keys, "arrived": len(keys)}}


# --- answers -------------------------------------------------------------------------------------


@plant("")
def answers_are_not_recorded(rush: RecordedRush) -> None:
    rush.happened.events = [
        e for e in rush.happened.events if e["by"] == "node" or e["type"] == "invoke"
    ]


@plant("", locks=ALL)
def the_last_buyers_were_never_let_in(rush: RecordedRush) -> None:
    """The sale was declared over by a door that no node knows of."""
    rush.answer(5, "closed")


@plant("contradiction", locks=ALL)
def answers_lie_about_the_stock(rush: RecordedRush) -> None:
    rush.change_answers(stock_seen=500)


@plant("contradiction")
def buyers_are_answered_with_the_fence_of_another(rush: RecordedRush) -> None:
    rush.change_answers(fence=100)


@plant("contradiction")
def buyers_are_answered_with_the_sale_before(rush: RecordedRush) -> None:
    rush.change_answers(sold_in=6)


@plant("lost_ack", locks=ALL)
def two_buyers_are_answered_with_one_order(rush: RecordedRush) -> None:
    """Buyer 5 was refused, and is shown the order of buyer 1."""
    rush.answer(5, "sold", order=rush.happened.orders[1]["order"], sold_in=7)


@plant("outside_request", locks=ALL)
def an_answer_is_recorded_before_its_request(rush: RecordedRush) -> None:
    """So the request has none, and its buyer no last answer."""
    for event in rush.happened.events:
        if event["by"] == "buyer" and event["attempt"] == "buyer-2" and event["type"] != "invoke":
            event["t"] = 1


@plant("outside_request", locks=ALL)
def an_answer_says_sold_where_no_request_is_known(rush: RecordedRush) -> None:
    rush.happened.answered(119, "buyer-77", "sold", 31)


# --- those who ask again -------------------------------------------------------------------------


@plant("false_refusal", locks=ALL)
def busy_but_sold_and_the_retry_replays(rush: RecordedRush) -> None:
    rush.answer(1, "busy")
    rush.asks_again(1)


@plant("false_refusal", locks=ALL)
def busy_but_sold_and_the_retry_calls_it_new(rush: RecordedRush) -> None:
    rush.answer(1, "busy")
    rush.asks_again(1, replayed=False)


@plant("false_refusal", locks=EACH_WAY)
def the_first_answer_to_a_buyer_is_a_replay(rush: RecordedRush) -> None:
    rush.answer(1, "sold", order=rush.happened.orders[1]["order"], replayed=True, sold_in=7)


@plant("contradiction", locks=("redis", "row-lock", "conditional"))
def a_replay_names_another_sale(rush: RecordedRush) -> None:
    """The answer was lost, the buyer asked again, and is told of its order in the next sale."""
    rush.answer(1, "unknown")
    rush.asks_again(1, sold_in=8)


@plant("unrecorded", locks=EACH_WAY)
def a_second_request_is_refused_by_a_node_that_recorded_nothing(rush: RecordedRush) -> None:
    """Its first one was recorded, and answered busy."""
    rush.answer(5, "busy")
    rush.happened.asks(200, "buyer-5")
    rush.happened.answered(210, "buyer-5", "sold_out")
