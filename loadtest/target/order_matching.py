"""The buyers of a rush's orders: each order of a target is matched to the buyer who placed it.

An order names its buyer, or an answer names the order, as far as the target shows either.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from loadtest.judge.intervals import Request, group_by
from loadtest.target.order_numbers import as_serial, as_written, find_common_spelling
from loadtest.target.sale_counter import NO_BUYER, OrdersOrTotal, SaleCounter, orders_if_listed
from loadtest.target.target import TargetError, file_of


def match_orders_to_buyers(
    counter: SaleCounter, shop_orders: OrdersOrTotal, requests: Sequence[Request]
) -> list[dict[str, Any]]:
    """Return the orders of a rush with the keys of their buyers.

    The requests are changed in place: they name orders as orders() does, and an answer `sold` that
    names no order gets the order of its buyer.

    The orders of this project's shop have these keys already, so nothing is changed for them.

    If only the number of orders is known, orders are made up: one for each answer `sold`, then one
    for each request of unknown outcome; any others have no buyer. Then only the totals are judged.

    Raises TargetError if the answers cannot be compared with the orders: the answers name orders
    from before this rush or write the numbers differently, or no order names a buyer of the rush.

    shop_orders  what counter.orders() returned
    requests     the requests of all buyers
    """
    if isinstance(shop_orders, int):
        orders = _make_orders_from_count(shop_orders, requests)
    elif counter.target.records_keys:
        return shop_orders  # each order of this project's shop has the key of its buyer
    else:
        _spell_answers_as_listed(counter, shop_orders, requests)
        orders = _assign_owners(shop_orders, requests)
        _refuse_earlier_orders(counter, orders, requests)
    number_by_key = {order["key"]: order["order"] for order in orders}
    for request in requests:
        if request.outcome == "sold" and (request.order is None or isinstance(shop_orders, int)):
            request.order = number_by_key.get(request.attempt)
    return orders


def count_matched_by_number(
    shop_orders: OrdersOrTotal, matched_orders: Sequence[Mapping[str, Any]]
) -> int:
    """Return how many orders do not name their buyer but were matched by the number in an answer.

    shop_orders     the orders before match_orders_to_buyers(), or only their number
    matched_orders  the orders after it, in the same sequence
    """
    if isinstance(shop_orders, int):
        return 0
    return sum(
        before["key"] != after["key"]
        for before, after in zip(shop_orders, matched_orders, strict=True)
    )


def _spell_answers_as_listed(
    counter: SaleCounter, shop_orders: list[dict[str, Any]], requests: Sequence[Request]
) -> None:
    """Change the requests so that their answers write order numbers as orders() does.

    A spelling is a function that turns two ways to write a number into one: #0012 and 12 become 12.

    Raises TargetError if an answer names an order from before this rush, or if read() and orders()
    certainly name orders differently (see _spell_answers_by_buyer).
    """
    earlier_orders = orders_if_listed(counter.orders_before)
    listed_numbers = [order["order"] for order in earlier_orders + shop_orders]
    numbered_requests = [request for request in requests if request.order is not None]
    answered_numbers = {request.order for request in numbered_requests if request.order is not None}
    spelling = find_common_spelling(answered_numbers, listed_numbers)
    if spelling is None:
        _spell_answers_by_buyer(shop_orders, numbered_requests)
        spelling = as_written
    listed_number_by_spelling = {spelling(order["order"]): order["order"] for order in shop_orders}
    earlier_order_by_spelling = {spelling(order["order"]): order for order in earlier_orders}
    for request in numbered_requests:
        number = spelling(request.order or "")
        if number not in listed_number_by_spelling and number in earlier_order_by_spelling:
            order = earlier_order_by_spelling[number]
            raise _make_earlier_order_error(counter, request, f"with order {order['order']}", order)
        request.order = listed_number_by_spelling.get(number, as_written(request.order))


def _spell_answers_by_buyer(
    orders: list[dict[str, Any]], numbered_requests: Sequence[Request]
) -> None:
    """Replace the number in an answer by that of the buyer's only order if both end alike.

    For example, `7` becomes EU-7 if the buyer's only order is EU-7, although there may be a US-7.

    Raises TargetError if each of these buyers has exactly one order, and some answer does not end
    with the digits of that order. Then read() and orders() certainly name orders differently.

    numbered_requests  the requests whose answer has the number of an order
    """
    orders_by_key = group_by(orders, itemgetter("key"))
    only_orders = [
        (request, orders_by_key[request.attempt][0])
        for request in numbered_requests
        if len(orders_by_key.get(request.attempt, ())) == 1
    ]
    matches = [
        (request, order)
        for request, order in only_orders
        if as_serial(request.order) == as_serial(order["order"])
    ]
    all_have_one_order = len(only_orders) == len(numbered_requests)
    if all_have_one_order and len(matches) < len(numbered_requests):
        request, order = only_orders[0]
        raise TargetError(
            f"an answer names an order {request.order!r}, and orders() names that buyer's only "
            f"order {order['order']!r}: let read() and orders() name it in the same way"
        )
    for request, order in matches:
        request.order = order["order"]


def _refuse_earlier_orders(
    counter: SaleCounter, orders: list[dict[str, Any]], requests: Sequence[Request]
) -> None:
    """Raise TargetError if a buyer was answered `sold` but has only an order from before this rush.

    The shop seems to return the existing order of a known customer.
    """
    buyers_with_order = {order["key"] for order in orders}
    earlier_order_by_key = {
        order["key"]: order for order in orders_if_listed(counter.orders_before)
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
    history_phrase = "it was there"
    if order["key"] == request.attempt:
        history_phrase = f"{name} had order {order['order']}"
    return TargetError(
        f"{file_of(counter.target)}: {name} was answered {answer_phrase}, and {history_phrase} "
        "before this rush. Shops often return a customer's existing order: log in with buyer.key, "
        "which is new in every rush"
    )


def _assign_owners(
    orders: list[dict[str, Any]], requests: Sequence[Request]
) -> list[dict[str, Any]]:
    """Return the orders with the keys of their buyers.

    An order that names no buyer of this rush belongs to the buyer whose answer names the order.
    Raises TargetError if no order can be assigned in either way.
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
        raise TargetError(_describe_unknown_owner(orders[0], list(key_by_number)))
    owned_orders = []
    for order in orders:
        if order["key"] not in attempts:
            order = order | {"key": key_by_number.get(order["order"], order["key"])}
        owned_orders.append(order)
    return owned_orders


def _describe_unknown_owner(order: Mapping[str, Any], answered_numbers: Sequence[Any]) -> str:
    """Return the error message if none of the orders can be matched to a buyer.

    No order names a buyer of this rush, and no answer names one of the orders.

    order             the first of the orders
    answered_numbers  the order numbers in the answers
    """
    buyer_phrase = f"names {order['key']!r}, and no buyer of this rush"
    if order["key"] == NO_BUYER:
        buyer_phrase = f"names no buyer (for example, of order {order['order']!r})"
    if answered_numbers:
        return (
            f"an answer names an order {answered_numbers[0]!r}, and orders() names an order "
            f"{order['order']!r} and {buyer_phrase}: let read() and orders() name an order in the "
            "same way, or return buyer.name or buyer.key with each order"
        )
    return (
        f"orders() {buyer_phrase}: return buyer.name (buyer-0, buyer-1, ...) or buyer.key with "
        "each order, or let read() name the order: sold(order=12)"
    )


def describe_unmatched_numbers(
    orders: Sequence[Mapping[str, Any]], requests: Sequence[Request]
) -> list[str]:
    """Return a list with a sentence if the answers and orders() seem to number orders differently.

    There are two signs, and both are required: an answer has a number that no order has, and some
    order has neither a buyer of this rush nor a number from an answer.
    """
    attempts = {request.attempt for request in requests}
    listed_numbers = {order["order"] for order in orders}
    answered_numbers = {request.order for request in requests if request.order is not None}
    unlisted_numbers = [number for number in answered_numbers if number not in listed_numbers]
    unanswered_numbers = [
        order["order"]
        for order in orders
        if order["key"] not in attempts and order["order"] not in answered_numbers
    ]
    if not (unlisted_numbers and unanswered_numbers):
        return []
    return [
        f"an answer names an order {min(unlisted_numbers, key=str)!r}, which orders() does not "
        f"list, and orders() lists an order {min(unanswered_numbers, key=str)!r}, which no answer "
        "names: if these are two ways to number the orders, let read() and orders() name them in "
        "the same way"
    ]


def _make_orders_from_count(count: int, requests: Sequence[Request]) -> list[dict[str, Any]]:
    """Make `count` orders, for a shop that shows only how many orders it has.

    Each order gets the key of a buyer who may have it: first the buyers who were answered `sold`,
    then those with a request of unknown outcome (Jepsen's type "info").
    """
    possible_buyers = [request.attempt for request in requests if request.outcome == "sold"]
    possible_buyers += [request.attempt for request in requests if request.type == "info"]
    keys = list(dict.fromkeys(possible_buyers))[:count]
    keys += [NO_BUYER] * (count - len(keys))
    return [{"order": f"{number} of {count}", "key": key} for number, key in enumerate(keys, 1)]
