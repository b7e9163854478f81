"""Violations that the judge passed until somebody planted them: the second list.

Each has the strategies under which it is planted, and the rule that has to find it.
"""

from __future__ import annotations

from typing import Any

from loadtest.judge.evidence import EVIDENCE
from loadtest.judge.sale_record import Reply
from loadtest.tests.recorded import Plant, RecordedRush

ALL = tuple(EVIDENCE)
FENCED = tuple(lock for lock, evidence in EVIDENCE.items() if evidence.fenced)
LOCKED = tuple(lock for lock, evidence in EVIDENCE.items() if evidence.locked)


def answers_of(rush: RecordedRush, outcome: str = "ok") -> list[Any]:
    return [e for e in rush.happened.events if e["by"] == "buyer" and e["type"] == outcome]


def every_order_is_of_two_units(rush: RecordedRush) -> None:
    for order in rush.happened.orders:
        order["amount"] = 2


def one_order_is_of_another_product(rush: RecordedRush) -> None:
    rush.happened.orders[2]["product"] = "pear"


def a_replay_names_another_sale(rush: RecordedRush) -> None:
    """The answer was lost, the buyer asked again, and is told of its order in the next sale."""
    order = rush.happened.orders[1]["order"]
    rush.answer(1, "unknown")
    rush.happened.asks(200, "buyer-1")
    rush.happened.answered(210, "buyer-1", "sold", order)
    rush.happened.events[-1].update({"replayed": True, "sold_in": 8})
    rush.at(1, 182, "arrives")
    rush.at(1, 183, "begins", "invoke", lock=rush.lock, product="pause-token", sale=7)


def answers_lie_about_the_stock(rush: RecordedRush) -> None:
    for event in answers_of(rush):
        event["stock_seen"] = 500


def a_release_names_another_token(rush: RecordedRush) -> None:
    for event in rush.events("release", 2):
        event["token"] = "token-1"


def a_read_was_of_the_sale_before(rush: RecordedRush) -> None:
    for event in [*rush.events("after_read", 2), *rush.events("reserved", 2)]:
        event["sale"] = 6


def a_purchase_began_for_another_sale(rush: RecordedRush) -> None:
    rush.events("begins", 2)[0]["sale"] = 6


def a_purchase_began_for_another_product(rush: RecordedRush) -> None:
    rush.events("begins", 2)[0]["product"] = "pear"


def a_grant_was_recorded_for_a_key_that_nobody_sent(rush: RecordedRush) -> None:
    rush.happened.acquires(41, 42, "a ghost")


# --- of our own invention ------------------------------------------------------------------------


def one_buyer_gets_two_units_in_one_order(rush: RecordedRush) -> None:
    """And a fourth buyer is told sold_out: three orders take four units."""
    rush.happened.orders[0]["amount"] = 2
    rush.happened.shelf = 0
    del rush.happened.orders[3]


def an_order_of_no_units(rush: RecordedRush) -> None:
    rush.happened.orders[3]["amount"] = 0
    rush.happened.shelf = 1


def an_order_of_minus_one_unit_hides_an_oversell(rush: RecordedRush) -> None:
    """Two buyers too many, and two orders that count for nothing: the sum is right."""
    for number, amount in ((4, 1), (5, -1)):
        key = f"buyer-{number}"
        order = {"order": 50 + number, "key": key, "lock": rush.lock, "fence": None}
        rush.happened.orders.append({**order, "stock_seen": 1, "buyer": key, "amount": amount})


def orders_are_numbered_twice(rush: RecordedRush) -> None:
    rush.happened.orders[2]["order"] = rush.happened.orders[1]["order"]


def two_buyers_are_answered_with_one_order(rush: RecordedRush) -> None:
    """Buyer 5 was refused, and is shown the order of buyer 1."""
    rush.answer(5, "sold", order=rush.happened.orders[1]["order"], sold_in=7)


def a_replay_is_answered_with_another_stock(rush: RecordedRush) -> None:
    a_replay_names_another_sale(rush)
    rush.happened.events = [e for e in rush.happened.events if e.get("sold_in") != 8]
    order = rush.happened.orders[1]["order"]
    rush.happened.answered(210, "buyer-1", "sold", order)
    rush.happened.events[-1].update({"replayed": True, "sold_in": 7, "stock_seen": 1})


def an_answer_is_recorded_before_its_request(rush: RecordedRush) -> None:
    """So the request has none, and its buyer no last answer."""
    for event in rush.happened.events:
        if event["by"] == "buyer" and event["attempt"] == "buyer-2" and event["type"] != "invoke":
            event["t"] = 1


def a_buyer_was_served_by_two_nodes_at_once(rush: RecordedRush) -> None:
    """Both commit: the second row has the same number."""
    order = rush.happened.orders[2]["order"]
    rush.happened.at(48, "buyer-2", "before_commit", "invoke", order=order, sale=7, node="B",
                     pid=99, thread=1)  # fmt: skip


def all_orders_are_answered_by_one_silent_process(rush: RecordedRush) -> None:
    rush.happened.events = [e for e in rush.happened.events if e.get("pid") != 13]


def a_holder_reads_and_commits_in_two_holds(rush: RecordedRush) -> None:
    """It let go in between, and nobody else came: right by luck."""
    rush.at(2, 8, "release", "invoke", token="token-2")
    rush.at(2, 8.2, "released", outcome="released", token="token-2")
    rush.at(2, 8.4, "acquire", "invoke")
    rush.at(2, 8.6, "acquired", token="token-2b", fence=102, lock_name=f"{rush.lock}:pause-token")


def a_release_is_of_nobody(rush: RecordedRush) -> None:
    for event in rush.events("released", 1):
        event["outcome"] = "unknown"


def a_grant_has_no_token(rush: RecordedRush) -> None:
    for number in (1, 2):
        for kind in ("acquired", "release", "released"):
            for event in rush.events(kind, number):
                event["token"] = ""


def fences_jump_back_by_one_for_a_moment(rush: RecordedRush) -> None:
    """The grant and its order agree: only the order of the fences is wrong."""
    for event in rush.events("acquired", 2):
        event["fence"] = 100
    rush.happened.orders[2]["fence"] = 100
    for event in answers_of(rush):
        if event["attempt"] == "buyer-2":
            event["fence"] = 100


def the_sale_sold_one_less_and_says_that_it_opened_so(rush: RecordedRush) -> Any:
    return {"opened": rush.stock - 1}


def the_last_buyers_were_never_let_in(rush: RecordedRush) -> Any:
    """The sale was declared over by a door that no node knows of."""
    rush.answer(5, "closed")


def a_unit_came_back_after_the_sale(rush: RecordedRush) -> None:
    rush.happened.shelf = 1


def a_buyer_is_refused_by_its_first_answer_and_has_an_order(rush: RecordedRush) -> None:
    """The second request replays it: nobody committed in between."""
    order = rush.happened.orders[1]["order"]
    rush.answer(1, "full")
    rush.happened.asks(200, "buyer-1")
    rush.happened.answered(210, "buyer-1", "sold", order)
    rush.happened.events[-1].update({"replayed": True, "sold_in": 7})
    rush.at(1, 182, "arrives")
    rush.at(1, 183, "begins", "invoke", lock=rush.lock, product="pause-token", sale=7)


def an_order_is_of_a_buyer_with_another_key(rush: RecordedRush) -> None:
    for order in rush.happened.orders[:2]:
        order["key"] = "buyer-0"


def a_reply_says_sold_where_no_request_is_known(rush: RecordedRush) -> None:
    rush.happened.replies["buyer-77"] = Reply("buyer-77", "sold", 31)


def a_node_looked_at_the_stock_of_nobody(rush: RecordedRush) -> None:
    rush.happened.reads(61, "a ghost", 1)


#: What was passed, where it is planted, and the rule that finds it.
FOUND_LATER: list[tuple[Plant, tuple[str, ...], str]] = [
    (every_order_is_of_two_units, ALL, "wrong_amount"),
    (one_order_is_of_another_product, ALL, "contradiction"),
    (a_replay_names_another_sale, ("redis", "row-lock", "conditional"), "contradiction"),
    (answers_lie_about_the_stock, ALL, "contradiction"),
    (a_release_names_another_token, FENCED, "false_release"),
    (a_read_was_of_the_sale_before, ALL, "contradiction"),
    (a_purchase_began_for_another_sale, ALL, "contradiction"),
    (a_purchase_began_for_another_product, ALL, "wrong_lock"),
    (a_grant_was_recorded_for_a_key_that_nobody_sent, LOCKED, "outside_request"),
]
#: The same, thought out for this list.
INVENTED: list[tuple[Plant, tuple[str, ...], str]] = [
    (one_buyer_gets_two_units_in_one_order, ALL, "wrong_amount"),
    (an_order_of_no_units, ALL, "wrong_amount"),
    (an_order_of_minus_one_unit_hides_an_oversell, ALL, "wrong_amount"),
    (orders_are_numbered_twice, ALL, "lost_ack"),
    (two_buyers_are_answered_with_one_order, ALL, "lost_ack"),
    (a_replay_is_answered_with_another_stock, ("redis", "row-lock", "counter"), "contradiction"),
    (an_answer_is_recorded_before_its_request, ALL, "outside_request"),
    (a_buyer_was_served_by_two_nodes_at_once, ("row-lock", "conditional"), "contradiction"),
    (all_orders_are_answered_by_one_silent_process, ALL, "unrecorded"),
    (a_holder_reads_and_commits_in_two_holds, LOCKED, "unlocked"),
    (a_release_is_of_nobody, LOCKED, "expired_hold"),
    (a_grant_has_no_token, LOCKED, "shared_token"),
    (fences_jump_back_by_one_for_a_moment, FENCED, "fence_fell"),
    (the_sale_sold_one_less_and_says_that_it_opened_so, ALL, "wrong_stock"),
    (the_last_buyers_were_never_let_in, ALL, ""),
    (a_unit_came_back_after_the_sale, ALL, "lost_update"),
    (a_buyer_is_refused_by_its_first_answer_and_has_an_order, ALL, "false_refusal"),
    (an_order_is_of_a_buyer_with_another_key, ALL, "double_order"),
    (a_reply_says_sold_where_no_request_is_known, ALL, "foreign_key"),
    (a_node_looked_at_the_stock_of_nobody, ALL, "outside_request"),
]
