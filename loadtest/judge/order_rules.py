"""The rules on orders and answers.

A correct sale never breaks these rules. They allow for every outcome of a request without an
answer, and such a request may take effect at any time after it was sent. If a sale breaks a rule,
it is not exact: the shop or the record is wrong.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from math import inf
from operator import itemgetter
from typing import Any

from loadtest.judge.finding import Case, format_count, make_order_case
from loadtest.judge.intervals import Request, group_by
from loadtest.judge.rule import rule
from loadtest.judge.sale_record import SaleRecord

#: Advice for a third-party shop in which two buyers have orders with the same number. Its adapter's
#: orders() may return a number that the shop counts separately for each buyer.
PRIMARY_KEY_HINT = (
    "; if the orders of each buyer are numbered from 1, let orders() return the primary key"
)
#: The first number of a series, such as `1`, `ann-1` or `A-001`; not `11` or `A-21`.
FIRST_NUMBER = re.compile(r"(?<!\d)0*1\Z")


@rule("lost_update")
def lost_update(record: SaleRecord) -> Iterator[Case]:
    """Rule: the stock has fallen by exactly the number of ordered units."""
    lost_updates = record.lost_updates
    if not lost_updates:
        return
    taken_units = record.ordered_units - lost_updates
    if lost_updates > 0:
        verb = "was" if lost_updates == 1 else "were"
        effect = f"{format_count(lost_updates, 'decrement')} {verb} erased"
    else:
        effect = f"{format_count(-lost_updates, 'unit')} left the stock without an order"
    orders = format_count(len(record.orders), "order")
    yield Case(f"{orders} took {format_count(taken_units, 'unit')}: {effect}")


@rule("wrong_amount")
def wrong_amount(record: SaleRecord) -> Iterator[Case]:
    """Rule: each order has one unit, because a purchase request is always for one unit."""
    for order in record.orders:
        units = order.get("amount", 1)
        if units != 1:
            yield make_order_case(order, f"has {units} units, and one was requested")


@rule("double_number")
def double_number(record: SaleRecord) -> Iterator[Case]:
    """Rule: no two buyers have orders with the same number."""
    for number, orders in group_by(record.orders, itemgetter("order")).items():
        keys = list(dict.fromkeys(order["key"] for order in orders))
        if len(keys) > 1:
            owners = " and ".join(key or "no buyer" for key in keys[:3])
            hint = PRIMARY_KEY_HINT if _may_be_numbered_by_buyer(record) else ""
            yield Case(f"order {number} belongs to {owners}{hint}", *keys)


def _may_be_numbered_by_buyer(record: SaleRecord) -> bool:
    """Return whether this is a third-party shop that may number each buyer's orders from 1.

    A shop that numbers its orders in this way has an order with the number 1, such as `ann-1`.
    """
    if record.is_own_shop:
        return False
    return any(FIRST_NUMBER.search(str(order["order"])) for order in record.orders)


@rule("lost_ack")
def lost_ack(record: SaleRecord) -> Iterator[Case]:
    """Rule: each answer `sold` has the number of an order that the buyer has.

    An `ack` is the acknowledgement of an order, which is the answer `sold`. It is lost if the order
    does not exist any more.
    """
    keys_and_numbers = {(order["key"], order["order"]) for order in record.orders}
    # If several orders have a number, the first one counts.
    owners = {order["order"]: order["key"] for order in reversed(record.orders)}
    for key, numbers in record.acknowledged_numbers_by_key.items():
        own_number = record.order_numbers_by_key.get(key)
        for number in numbers:
            if (key, number) in keys_and_numbers:
                continue
            answer = "sold, without a number" if number is None else f"with order {number}"
            owner = owners.get(number)
            if own_number is not None:
                contradiction = f"it has order {own_number}"
            elif owner:
                contradiction = f"that order is {owner}'s"
            elif number in owners:
                contradiction = "that order has no buyer's key"
            elif number is None:
                contradiction = "it has no order"
            else:
                contradiction = "no such order exists"
            yield Case(f"{key} was answered {answer}; {contradiction}", key)


@rule("false_sold_out")
def false_sold_out(record: SaleRecord) -> Iterator[Case]:
    """Rule: a buyer is answered `sold_out` only if all units may have been sold by then.

    A buyer who has an order is never answered `sold_out`.
    """
    sale_times = _list_earliest_sale_times(record)
    for request in record.requests:
        if request.outcome != "sold_out":
            continue
        key = request.attempt
        max_sold_units = bisect_left(sale_times, request.answered_at or inf)
        if max_sold_units < record.initial_stock:
            yield Case(
                f"{key} was answered sold_out when at most {max_sold_units} of "
                f"{record.initial_stock} units had been sold",
                key,
            )
        elif key in record.order_numbers_by_key:
            number = record.order_numbers_by_key[key]
            yield Case(f"{key} was answered sold_out and has order {number}", key)


def _list_earliest_sale_times(record: SaleRecord) -> list[float]:
    """Return the earliest time at which the unit of each order can have been sold, sorted.

    This is the time of the reservation in Redis. If none was recorded, it is the time of the node's
    last read of the stock before the commit, else of the commit's beginning, else of the buyer's
    first request. If nothing was recorded, it is minus infinity.
    """
    time_by_attempt: dict[str, float] = {}
    for event in record.events:
        if event["by"] == "node" and event["f"] == "reserve":
            time_by_attempt.setdefault(event["attempt"], event["t"])
    for commit in record.commits:
        earliest_at = commit.begun_at if commit.read_at is None else commit.read_at
        time_by_attempt.setdefault(commit.attempt, earliest_at)
    for request in record.requests:
        time_by_attempt.setdefault(request.attempt, request.sent_at)
    return sorted(time_by_attempt.get(order["key"], -inf) for order in record.orders)


@rule("false_refusal")
def false_refusal(record: SaleRecord) -> Iterator[Case]:
    """Rule: a refused request sold nothing, and a replay follows a request that was not refused.

    A replay is an answer with an order that an earlier request of the buyer made.

    If a buyer with an order was answered `sold_out`, only the rule `false_sold_out` reports it.
    """
    yield from _find_orders_of_refused_requests(record)
    for key, requests in record.requests_by_key.items():
        unrefused_requests = [request for request in requests if not _is_refused(request)]
        if unrefused_requests and unrefused_requests[0].replayed:
            # All requests before the replay were refused, so none of them can have made the order.
            if unrefused_requests[0] is requests[0]:
                problem = f"{key}'s first answer was a replay of an earlier order"
            else:
                problem = f"{key} was refused each time, and then answered with an earlier order"
            yield Case(problem, key)
        was_sold_out = any(request.outcome == "sold_out" for request in requests)
        own_number = record.order_numbers_by_key.get(key)
        if not unrefused_requests and not was_sold_out and own_number is not None:
            yield Case(f"{key} was refused and has order {own_number}", key)


def _find_orders_of_refused_requests(record: SaleRecord) -> Iterator[Case]:
    """Yield a case for each order whose commit can only belong to a refused request."""
    for number, commit in record.commits_by_order.items():
        key = commit.attempt
        requests = [
            request
            for request in record.requests_by_key.get(key, ())
            if request.may_be_active_at(commit.begun_at)
        ]
        if requests and all(map(_is_refused, requests)):
            outcome = requests[0].outcome
            yield Case(f"{key} was answered {outcome}, but this request sold order {number}", key)


def _is_refused(request: Request) -> bool:
    return request.type == "fail"


@rule("ghost_order")
def ghost_order(record: SaleRecord) -> Iterator[Case]:
    """Rule: every order has the key of a buyer who sent a request."""
    for order in record.orders:
        if order["key"] not in record.requests_by_key:
            yield make_order_case(order, _describe_unknown_buyer(record, order))


def _describe_unknown_buyer(record: SaleRecord, order: Mapping[str, Any]) -> str:
    """Return what is wrong with an order whose key no buyer sent.

    The text follows "order 7" in a message.
    """
    if record.is_own_shop:
        return f"has the key {order['key']}, which no buyer sent"
    if not order["key"]:
        return "has no buyer's key, and no answer has its number"
    return f"belongs to {order['key']}, who is not a buyer of the rush"


@rule("double_order")
def double_order(record: SaleRecord) -> Iterator[Case]:
    """Rule: an attempt has at most one order, and all answers to it have the same order number."""
    orders_by_key = group_by(record.orders, itemgetter("key"))
    for key in dict.fromkeys([*orders_by_key, *record.acknowledged_numbers_by_key]):
        if not key:  # orders without a key do not belong to one buyer
            continue
        orders = orders_by_key.get(key, [])
        # None stands for an answer without a number. It does not show another order.
        acknowledged_numbers = record.acknowledged_numbers_by_key.get(key, set()) - {None}
        if len(orders) > 1 or len(acknowledged_numbers) > 1:
            numbers = {order["order"] for order in orders} | acknowledged_numbers
            texts = sorted(map(str, numbers), key=_number_sort_key)
            yield Case(f"{key} has the orders {', '.join(texts)}", key)


def _number_sort_key(number: str) -> tuple[int, str]:
    """Return a key that sorts numbers, given as text, by their size: 9 before 10."""
    return len(number), number
