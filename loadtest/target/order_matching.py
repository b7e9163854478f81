"""Matches each order of a target (a third-party shop under test) to the buyer who placed it.

The target may list the buyer with each order, or its answer to a buyer may have the number of the
order. It may also show neither.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from loadtest.judge.intervals import Request, group_by
from loadtest.target.order_numbers import (
    find_common_normalizer,
    get_trailing_number,
    parse_canonical_number,
)
from loadtest.target.sale_counter import NO_BUYER, OrdersOrTotal, SaleCounter, get_listed_orders
from loadtest.target.target import TargetError, get_target_file


def match_orders_to_buyers(
    counter: SaleCounter, shop_orders: OrdersOrTotal, requests: Sequence[Request]
) -> list[dict[str, Any]]:
    """Return the orders of a rush (many buyers at the same instant) with the keys of their buyers.

    The requests are changed in place. The order number in an answer is written as orders() writes
    it. An answer `sold` without an order number gets the number of its buyer's order.

    The orders of this project's shop have these keys already, so nothing is changed for them.

    If only the number of orders is known, orders without details are made up in their place: one
    for each answer `sold`, then one for each request of unknown outcome. Further orders have no
    buyer. So only the totals are judged.

    Raises TargetError if the answers cannot be compared with the orders: the answers have numbers
    of orders from before this rush, read() and orders() number the same order differently, or no
    order can be matched to a buyer of the rush.

    shop_orders  what counter.orders() returned
    requests     the requests of all buyers
    """
    if isinstance(shop_orders, int):
        orders = _make_orders_from_count(shop_orders, requests)
    elif counter.target.is_own_shop:
        return shop_orders  # each order of this project's shop has the key of its buyer
    else:
        _rewrite_answered_numbers(counter, shop_orders, requests)
        orders = _assign_buyers(shop_orders, requests)
        _raise_for_earlier_orders(counter, orders, requests)
    number_by_key = {order["key"]: order["order"] for order in orders}
    for request in requests:
        if request.outcome == "sold" and (request.order is None or isinstance(shop_orders, int)):
            request.order = number_by_key.get(request.attempt)
    return orders


def count_matched_by_number(
    shop_orders: OrdersOrTotal, matched_orders: Sequence[Mapping[str, Any]]
) -> int:
    """Return how many orders were matched to their buyer by the order number in an answer.

    shop_orders     the orders that match_orders_to_buyers() got, or only their number
    matched_orders  the orders that it returned, in the same sequence
    """
    if isinstance(shop_orders, int):
        return 0
    return sum(
        shop_order["key"] != matched_order["key"]
        for shop_order, matched_order in zip(shop_orders, matched_orders, strict=True)
    )


def _rewrite_answered_numbers(
    counter: SaleCounter, shop_orders: list[dict[str, Any]], requests: Sequence[Request]
) -> None:
    """Write the order numbers in the requests' answers as orders() writes them.

    For example, if an answer has #0012 and orders() has 12, the answer gets 12. A normalizer
    (order_numbers.py) finds out that they are the same number: it turns both into 12.

    Raises TargetError if an answer has the number of an order from before this rush. Also raises it
    if read() and orders() number the same order differently (see _rewrite_by_trailing_number).
    """
    earlier_orders = get_listed_orders(counter.orders_before)
    listed_numbers = [order["order"] for order in earlier_orders + shop_orders]
    numbered_requests = [request for request in requests if request.order is not None]
    answered_numbers = {request.order for request in numbered_requests if request.order is not None}
    normalize = find_common_normalizer(answered_numbers, listed_numbers)
    if normalize is None:
        _rewrite_by_trailing_number(shop_orders, numbered_requests)
        normalize = parse_canonical_number
    listed_numbers_by_normalized = {
        normalize(order["order"]): order["order"] for order in shop_orders
    }
    earlier_orders_by_normalized = {normalize(order["order"]): order for order in earlier_orders}
    for request in numbered_requests:
        number = normalize(request.order or "")
        if number not in listed_numbers_by_normalized and number in earlier_orders_by_normalized:
            order = earlier_orders_by_normalized[number]
            raise _make_earlier_order_error(counter, request, f"with order {order['order']}", order)
        request.order = listed_numbers_by_normalized.get(
            number, parse_canonical_number(request.order)
        )


def _rewrite_by_trailing_number(
    orders: list[dict[str, Any]], numbered_requests: Sequence[Request]
) -> None:
    """Replace the order number in an answer by the number of its buyer's only order.

    This is done only if both numbers end in the same digits. For example, `7` becomes EU-7 if the
    buyer's only order is EU-7, even if there is also a US-7.

    Raises TargetError if each of these buyers has exactly one order, and some buyer's answer does
    not end with the digits of that order. This shows that read() and orders() number the same order
    differently.

    numbered_requests  the requests whose answer has the number of an order
    """
    orders_by_key = group_by(orders, itemgetter("key"))
    requests_with_only_order = [
        (request, orders_by_key[request.attempt][0])
        for request in numbered_requests
        if len(orders_by_key.get(request.attempt, ())) == 1
    ]
    matches = [
        (request, order)
        for request, order in requests_with_only_order
        if get_trailing_number(request.order) == get_trailing_number(order["order"])
    ]
    all_have_one_order = len(requests_with_only_order) == len(numbered_requests)
    if all_have_one_order and len(matches) < len(numbered_requests):
        request, order = requests_with_only_order[0]
        raise TargetError(
            f"an answer has the order number {request.order!r}, and orders() returned "
            f"{order['order']!r} for that buyer's only order: let read() and orders() return the "
            "same number for an order"
        )
    for request, order in matches:
        request.order = order["order"]


def _raise_for_earlier_orders(
    counter: SaleCounter, orders: list[dict[str, Any]], requests: Sequence[Request]
) -> None:
    """Raise TargetError if a buyer was answered `sold` but has only an order from before this rush.

    Such a shop probably found the customer's earlier order and returned it instead of selling.
    """
    buyers_with_order = {order["key"] for order in orders}
    earlier_order_by_key = {
        order["key"]: order for order in get_listed_orders(counter.orders_before)
    }
    for request in requests:
        is_sold_without_number = request.outcome == "sold" and request.order is None
        earlier_order = earlier_order_by_key.get(request.attempt)
        if (
            is_sold_without_number
            and earlier_order is not None
            and request.attempt not in buyers_with_order
        ):
            raise _make_earlier_order_error(counter, request, "sold", earlier_order)


def _make_earlier_order_error(
    counter: SaleCounter, request: Request, answer_phrase: str, order: Mapping[str, Any]
) -> TargetError:
    """Return the error for a buyer who was answered with an order from before this rush.

    answer_phrase  the text after "was answered" in the message: "sold", or "with order 7"
    """
    name = request.attempt.rpartition("/")[2]
    earlier_order_phrase = "this order existed"
    if order["key"] == request.attempt:
        earlier_order_phrase = f"{name} had order {order['order']}"
    return TargetError(
        f"{get_target_file(counter.target)}: {name} was answered {answer_phrase}, and "
        f"{earlier_order_phrase} before this rush. Shops often return a customer's existing order: "
        "log in with buyer.key, which is new in every rush"
    )


def _assign_buyers(
    orders: list[dict[str, Any]], requests: Sequence[Request]
) -> list[dict[str, Any]]:
    """Return the orders with the keys of their buyers.

    If the buyer that orders() lists with an order is not in this rush, the order is assigned to the
    buyer whose answer has the order's number. Raises TargetError if there are orders, and none of
    them belongs to a buyer of this rush by its listed buyer or by its number.
    """
    attempts = {request.attempt for request in requests}
    key_by_number = {
        request.order: request.attempt for request in requests if request.order is not None
    }
    if (
        orders
        and attempts
        and not any(order["key"] in attempts or order["order"] in key_by_number for order in orders)
    ):
        raise TargetError(_describe_unknown_buyers(orders[0], list(key_by_number)))
    assigned_orders = []
    for order in orders:
        if order["key"] not in attempts:
            order = order | {"key": key_by_number.get(order["order"], order["key"])}
        assigned_orders.append(order)
    return assigned_orders


def _describe_unknown_buyers(order: Mapping[str, Any], answered_numbers: Sequence[Any]) -> str:
    """Return the error message if none of the orders can be matched to a buyer.

    No order has a buyer of this rush, and no answer has the number of one of the orders.

    order             the first of the orders
    answered_numbers  the order numbers in the answers
    """
    buyer_phrase = f"the buyer {order['key']!r}, who is not in this rush"
    if order["key"] == NO_BUYER:
        buyer_phrase = f"no buyer (for example, of order {order['order']!r})"
    if answered_numbers:
        return (
            f"an answer has the order number {answered_numbers[0]!r}, and orders() returned the "
            f"order number {order['order']!r} and {buyer_phrase}: let read() and orders() return "
            "the same number for an order, or return buyer.name or buyer.key with each order"
        )
    return (
        f"orders() returned {buyer_phrase}: return buyer.name (buyer-0, buyer-1, ...) or buyer.key "
        "with each order, or let read() return the order's number: sold(order=12)"
    )


def describe_unmatched_numbers(
    orders: Sequence[Mapping[str, Any]], requests: Sequence[Request]
) -> list[str]:
    """Return one sentence if the answers and orders() seem to number orders differently, else none.

    A sentence is returned if both of these conditions are met: an answer has a number that no order
    has, and some order has neither a buyer of this rush nor a number that is in an answer.
    """
    attempts = {request.attempt for request in requests}
    listed_numbers = {order["order"] for order in orders}
    answered_numbers = {request.order for request in requests if request.order is not None}
    unlisted_numbers = [number for number in answered_numbers if number not in listed_numbers]
    numbers_without_answer = [
        order["order"]
        for order in orders
        if order["key"] not in attempts and order["order"] not in answered_numbers
    ]
    if not (unlisted_numbers and numbers_without_answer):
        return []
    return [
        f"an answer has the order number {min(unlisted_numbers, key=str)!r}, which orders() does "
        f"not list, and orders() lists {min(numbers_without_answer, key=str)!r}, which is in no "
        "answer: if these are two ways to number the orders, let read() and orders() return the "
        "same number for an order"
    ]


def _make_orders_from_count(count: int, requests: Sequence[Request]) -> list[dict[str, Any]]:
    """Make up `count` orders, for a shop that shows only how many orders it has.

    Each made-up order gets the key of a buyer who may have it: first the buyers who were answered
    `sold`, then those with a request of unknown outcome (Jepsen's type "info").
    """
    possible_buyers = [request.attempt for request in requests if request.outcome == "sold"]
    possible_buyers += [request.attempt for request in requests if request.type == "info"]
    keys = list(dict.fromkeys(possible_buyers))[:count]
    keys += [NO_BUYER] * (count - len(keys))
    return [{"order": f"{number} of {count}", "key": key} for number, key in enumerate(keys, 1)]
