"""The orders and the stock of a target's shop after a rush.

A target is a third-party shop, described by a file of its user (target.py). It may show less than
the judge can use: only the number of its orders, no stock, no idempotency keys. The run lists the
facts on which the verdict is based as `judged`, and those that the verdict leaves open as
`not_judged`. A promised order is one that the shop has accepted and has not written yet; to settle
means to write all promised orders.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeGuard

from loadtest.judge.finding import format_count
from loadtest.judge.intervals import Request, group_by
from loadtest.target.order_numbers import as_serial, as_written, find_common_spelling
from loadtest.target.target import Order, Target, TargetError, call, file_of

#: A list of orders, each with its number and its buyer's key, or only how many orders there are.
OrdersOrTotal = int | list[dict[str, Any]]
#: Seconds between two reads of a shop that has not written all orders yet.
POLL_INTERVAL_SECONDS = 0.1
#: The key of an order that names no buyer: a guest's.
NO_BUYER = ""


@dataclass
class SaleCounter:
    """Counts the orders and the stock of one sale of a target.

    keys                the key of each buyer, by its name: an Order may name its buyer by either
    units               the units that the sale was opened with
    opening_stock       the stock that the shop showed when the sale was opened, None without one
    orders_before       the orders that were there when the sale was opened
    was_growing_at_end  whether orders were still being added in the second half of
                        wait_until_settled(), when that ended at its time limit
    matched_by_number   how many orders name no buyer of the rush, and were matched to one by the
                        number in an answer; set by match_orders_to_buyers()
    """

    target: Target
    keys: Mapping[str, str]
    units: int = 0
    opening_stock: int | None = None
    orders_before: OrdersOrTotal = 0
    was_growing_at_end: bool = False
    matched_by_number: int = 0

    def open(self, stock: int) -> None:
        """Open a sale, and read its stock and the orders that are there already.

        Waits until the shop shows the stock, at most `settles_s` seconds. Raises ShopUnreachable,
        TargetError.
        """
        call(self.target, self.target.open, stock)
        self.units = stock
        stock_shown = self.stock()
        deadline = time.monotonic() + self.target.settles_s
        is_own_shop = bool(self.target.sale)  # shows its stock at once; the judge compares it
        while not is_own_shop and stock_shown is not None and stock_shown != stock:
            if time.monotonic() >= deadline:
                raise TargetError(
                    f"{file_of(self.target)}: open({stock}) put up {stock_shown} units, by stock() "
                    f"{self.target.settles_s:g} s later (settles_s): let it put up as many as it "
                    "is given; where a cache shows them later, set settles_s higher"
                )
            time.sleep(POLL_INTERVAL_SECONDS)
            stock_shown = self.stock()
        self.opening_stock = stock_shown
        self.orders_before = self._read_all_orders()

    def stock(self) -> int | None:
        """Return the units left, or None if the shop shows no stock.

        Raises ShopUnreachable, TargetError.
        """
        units_left = call(self.target, self.target.stock)
        if units_left is not None and not _is_whole_number(units_left):
            raise self._make_wrong_return_error(
                "stock", units_left, "a whole number, or None where the shop shows no stock"
            )
        if units_left is None and self.opening_stock is not None:
            expected = (
                f"0 where no unit is left: it returned {self.opening_stock} when the sale was "
                "opened"
            )
            raise self._make_wrong_return_error("stock", units_left, expected)
        return units_left

    def unsettled(self) -> int | None:
        """Return the number of orders that are promised and not written yet.

        None if the shop does not know the number; only this project's own shop may return None.
        Raises ShopUnreachable, TargetError.
        """
        unwritten_count = call(self.target, self.target.unsettled)
        is_known = _is_whole_number(unwritten_count) and unwritten_count >= 0
        if not is_known and not (unwritten_count is None and self.target.records_keys):
            expected = "how many promised orders are not written yet, or leave the method out"
            raise self._make_wrong_return_error("unsettled", unwritten_count, expected)
        return unwritten_count

    def wait_until_settled(self, sold_count: int) -> list[str]:
        """Wait until the shop has written all orders, at most `settles_s` seconds.

        All orders are written when there is one per `sold` answer, the stock has fallen by the
        number of orders, and unsettled() is 0. Returns a list with a sentence on the first of these
        conditions that is not met after the wait, or an empty list. Neither an oversold sale nor
        this project's own shop is waited for. Raises ShopUnreachable, TargetError.

        sold_count  how many answers said `sold`
        """
        # Only OurShop records keys, and its stock() already waits for unsettled orders.
        if self.target.records_keys:
            return []
        started_at = time.monotonic()
        last_count: int | None = None
        last_growth_at: float | None = None
        while True:
            unsettled = self.unsettled()
            count = count_orders(self.orders())
            now = time.monotonic()
            if last_count is not None and count > last_count:
                last_growth_at = now
            last_count = count
            sentences = self._describe_unsettled(sold_count, count, unsettled)
            if not sentences:
                return []
            if now >= started_at + self.target.settles_s:
                half_time = started_at + self.target.settles_s / 2
                self.was_growing_at_end = last_growth_at is not None and last_growth_at >= half_time
                return sentences
            time.sleep(POLL_INTERVAL_SECONDS)

    def _describe_unsettled(
        self, sold_count: int, order_count: int, unsettled: int | None
    ) -> list[str]:
        """Return a list with a sentence on what the shop has not written yet.

        The list is empty if everything is written, or if the sale is oversold.

        sold_count   how many answers said `sold`
        order_count  how many orders there are
        unsettled    how many promised orders are not written yet
        """
        if order_count > self.units:
            return []
        time_phrase = f"{self.target.settles_s:g} s after the answers (settles_s)"
        if order_count < sold_count:
            orders = "1 order was" if order_count == 1 else f"{order_count} orders were"
            return [
                f"{sold_count} answers said sold, and {orders} there {time_phrase}: where a "
                "queue writes them later, set settles_s higher, and where orders() asks for a page "
                "of them, let it follow the next pages"
            ]
        units_left = self.stock() if self.opening_stock is not None else None
        decrease = None
        if self.opening_stock is not None and units_left is not None:
            decrease = self.opening_stock - units_left
        if decrease is not None and decrease > order_count:
            return [
                f"{time_phrase}, stock() said {units_left}: it fell by {decrease}, and orders() "
                f"shows {order_count}"
            ]
        if decrease is not None and decrease != order_count:
            return [
                f"{time_phrase}, stock() said {units_left}: where it falls later, set settles_s "
                "higher, and where it falls at dispatch, return the units that the shop would "
                "still sell"
            ]
        return [f"{time_phrase}, unsettled() said {unsettled}"] if unsettled else []

    def orders(self) -> OrdersOrTotal:
        """Return the orders since the sale was opened, with their buyers' keys, or their number.

        Raises ShopUnreachable, TargetError.
        """
        orders = self._read_all_orders()
        before = self.orders_before
        if isinstance(orders, int):
            return max(0, orders - count_orders(before))
        if isinstance(before, int) and before > 0:
            raise TargetError(
                f"{file_of(self.target)}: orders() returned the number {before} when the sale was "
                "opened, and a list now: let it always return a list, so that earlier orders are "
                "told from new ones"
            )
        return _subtract_orders(orders, _orders_if_listed(before))

    def describe_changed_earlier_orders(self) -> list[str]:
        """Return a sentence if orders from before the sale are gone or have another buyer now.

        Raises ShopUnreachable, TargetError.
        """
        orders_now = self._read_all_orders()
        changed_orders = self._find_changed_earlier_orders(orders_now)
        if not changed_orders:
            return []
        key_now_by_number = {
            order["order"]: order["key"] for order in _orders_if_listed(orders_now)
        }
        number = changed_orders[0]["order"]
        further_orders = _describe_further_orders(changed_orders)
        if number in key_now_by_number:
            buyer_before = changed_orders[0]["key"] or "no buyer"
            buyer_now = key_now_by_number[number] or "no buyer"
            return [
                f"order {number} named {buyer_before} before this rush, and names {buyer_now} "
                f"now{further_orders}"
            ]
        return [
            f"order {number} was there before this rush, and is gone{further_orders}: where "
            "orders() leaves out earlier ones, or a job expires them, let it return all, and stop "
            "the job"
        ]

    def count_changed_earlier_orders(self) -> int:
        """Return how many orders from before the sale are gone or have another buyer now.

        Raises ShopUnreachable, TargetError.
        """
        return len(self._find_changed_earlier_orders(self._read_all_orders()))

    def _find_changed_earlier_orders(self, orders_now: OrdersOrTotal) -> list[dict[str, Any]]:
        """Return the orders from before the sale that are gone or have another buyer now.

        The list is empty if the shop returned only the number of its orders, before or now.
        """
        if isinstance(self.orders_before, int) or isinstance(orders_now, int):
            return []
        return _subtract_orders(self.orders_before, orders_now)

    def _read_all_orders(self) -> OrdersOrTotal:
        """Return all orders that orders() of the target returns, with their buyers' keys.

        Raises ShopUnreachable, and TargetError if what it returned is wrong.
        """
        shop_orders: Any = call(self.target, self.target.orders)
        if _is_whole_number(shop_orders) and shop_orders >= 0:
            return shop_orders
        if isinstance(shop_orders, str | bytes | Mapping) or not isinstance(shop_orders, Sequence):
            raise self._make_wrong_return_error(
                "orders", shop_orders, "a whole number, or a list of Order"
            )
        orders = [self._read_order(entry) for entry in shop_orders]
        for (number, key), times in Counter(map(_get_identity, orders)).items():
            if times > 1:  # counting it twice would look like an oversell
                buyer = f" of {key}" if key else ""
                raise TargetError(
                    f"{file_of(self.target)}: orders() lists order {number}{buyer} {times} "
                    "times: return each once; do two pages of it overlap? Where these are several "
                    "orders, name each by its primary key"
                )
        return orders

    def _read_order(self, entry: Any) -> dict[str, Any]:
        """Return the order of an entry of orders(), with its buyer's key. Raises TargetError."""
        order = entry
        if isinstance(order, Order):  # this project's own shop returns mappings instead
            buyer = NO_BUYER if order.buyer is None else str(order.buyer)
            order = {"order": order.number, "key": self.keys.get(buyer, buyer)}
        if not isinstance(order, Mapping) or not {"order", "key"} <= order.keys():
            raise self._make_wrong_return_error(
                "orders", entry, "Orders in its list: Order(number, buyer)"
            )
        if self.target.records_keys:
            return dict(order)
        if order["order"] in (None, ""):
            raise self._make_wrong_return_error(
                "orders", entry, "each order with its number: Order(number, buyer)"
            )
        key = NO_BUYER if order["key"] is None else str(order["key"])
        return {**order, "order": as_written(order["order"]), "key": key}

    def _make_wrong_return_error(self, method: str, returned: object, expected: str) -> TargetError:
        """Return the error for a method of the target that did not return what is expected."""
        file = file_of(self.target)
        return TargetError(f"{file}: {method}() returned {returned!r:.60}; return {expected}")


def describe_changes(before: OrdersOrTotal, now: OrdersOrTotal) -> list[str]:
    """Return a sentence on the orders that are gone, and one on the new ones, if there are any.

    If `before` or `now` is only a number, return a sentence on the change of the number, if any.
    """
    if isinstance(before, int) or isinstance(now, int):
        count_before = count_orders(before)
        count_now = count_orders(now)
        if count_before == count_now:
            return []
        return [f"orders() had {format_count(count_before, 'order')}, and has {count_now} now"]
    vanished_orders = _subtract_orders(before, now)
    new_orders = _subtract_orders(now, before)
    sentences = []
    for orders, change in ((vanished_orders, "is gone"), (new_orders, "has come since")):
        if orders:
            further_orders = _describe_further_orders(orders)
            sentences.append(f"order {orders[0]['order']} {change}{further_orders}")
    return sentences


def _describe_further_orders(orders: Sequence[object]) -> str:
    """Return how many orders there are besides the first, for the end of a sentence on it."""
    if len(orders) < 2:
        return ""
    return f" ({len(orders) - 1} more)"


def _is_whole_number(value: object) -> TypeGuard[int]:
    """Return whether a value is an int; True and False do not count as numbers."""
    return isinstance(value, int) and not isinstance(value, bool)


def count_orders(orders: OrdersOrTotal) -> int:
    """Return how many orders there are."""
    if isinstance(orders, int):
        return orders
    return len(orders)


def _orders_if_listed(orders: OrdersOrTotal) -> list[dict[str, Any]]:
    """Return the orders; an empty list if only their number is known."""
    if isinstance(orders, int):
        return []
    return orders


def _get_identity(order: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the number and the key, because two buyers may have orders of the same number."""
    return order["order"], order["key"]


def _subtract_orders(
    orders: list[dict[str, Any]], other_orders: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the orders that are not among the others, by number and key."""
    other_identities = {_get_identity(order) for order in other_orders}
    return [order for order in orders if _get_identity(order) not in other_identities]


def match_orders_to_buyers(
    counter: SaleCounter, shop_orders: OrdersOrTotal, requests: Sequence[Request]
) -> list[dict[str, Any]]:
    """Return the orders of a rush with the keys of their buyers.

    The requests are changed in place: they name orders as orders() does, and an answer `sold` that
    names no order gets the order of its buyer. The counter's `matched_by_number` is set.

    The orders of this project's shop have these keys already, so nothing is changed for them.

    If only the number of orders is known, orders are made up: one for each answer `sold`, then one
    for each request of unknown outcome; any others have no buyer. Then only the totals are judged.

    Raises TargetError if the answers cannot be compared with the orders: the answers name orders
    from before this rush or spell the numbers otherwise, or no order names a buyer of the rush.

    shop_orders  what counter.orders() returned
    requests     the requests of all buyers
    """
    if isinstance(shop_orders, int):
        orders = _make_orders_from_count(shop_orders, requests)
    elif counter.target.records_keys:
        return shop_orders  # each order of this project's shop has the key of its buyer
    else:
        _spell_as_listed(counter, shop_orders, requests)
        orders = _assign_owners(shop_orders, requests)
        counter.matched_by_number = sum(
            old["key"] != new["key"] for old, new in zip(shop_orders, orders, strict=True)
        )
        _refuse_earlier_orders(counter, orders, requests)
    number_of = {order["key"]: order["order"] for order in orders}
    for request in requests:
        if request.outcome == "sold" and (request.order is None or isinstance(shop_orders, int)):
            request.order = number_of.get(request.attempt)
    return orders


def _spell_as_listed(
    counter: SaleCounter, shop_orders: list[dict[str, Any]], requests: Sequence[Request]
) -> None:
    """Change the requests so that their answers name orders as orders() does.

    Raises TargetError if an answer names an order from before this rush, and in the case that
    _spell_by_buyer() describes.
    """
    earlier_orders = _orders_if_listed(counter.orders_before)
    listed_numbers = [order["order"] for order in earlier_orders + shop_orders]
    numbered_requests = [request for request in requests if request.order is not None]
    answered_numbers = {request.order for request in numbered_requests if request.order is not None}
    spelling = find_common_spelling(answered_numbers, listed_numbers)
    if spelling is None:
        _spell_by_buyer(shop_orders, numbered_requests)
        spelling = as_written
    listed_number_by_spelling = {spelling(order["order"]): order["order"] for order in shop_orders}
    earlier_order_by_spelling = {spelling(order["order"]): order for order in earlier_orders}
    for request in numbered_requests:
        number = spelling(request.order or "")
        if number not in listed_number_by_spelling and number in earlier_order_by_spelling:
            order = earlier_order_by_spelling[number]
            raise _make_earlier_order_error(counter, request, f"with order {order['order']}", order)
        request.order = listed_number_by_spelling.get(number, as_written(request.order))


def _spell_by_buyer(orders: list[dict[str, Any]], numbered_requests: Sequence[Request]) -> None:
    """Let an answer name its buyer's only order as orders() does if both end with the same digits.

    So `7` in an answer is EU-7 if that is the buyer's order, although there may be a US-7.

    Raises TargetError if each buyer whose answer names an order has exactly one order, and not all
    of them end like their answers: then it is certain that read() and orders() differ.

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
    """Raise TargetError if a buyer was answered `sold` and its only order is an earlier one.

    Then the shop has shown a returning customer the order from before this rush.
    """
    buyers = {order["key"] for order in orders}
    earlier_order_by_key = {
        order["key"]: order for order in _orders_if_listed(counter.orders_before)
    }
    for request in requests:
        is_without_number = request.outcome == "sold" and request.order is None
        if (
            is_without_number
            and request.attempt not in buyers
            and request.attempt in earlier_order_by_key
        ):
            raise _make_earlier_order_error(
                counter, request, "sold", earlier_order_by_key[request.attempt]
            )


def _make_earlier_order_error(
    counter: SaleCounter, request: Request, answer_phrase: str, order: Mapping[str, Any]
) -> TargetError:
    """Return the error for an answer about an order from before this rush.

    answer_phrase  the answer, as it follows "was answered": "sold", or "with order 7"
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
    """Return the message for orders that can be assigned neither by their buyer nor by number."""
    buyer_phrase = f"names {order['key']!r}, and no buyer of this rush"
    if order["key"] == NO_BUYER:
        buyer_phrase = f"names no buyer (of order {order['order']!r}, say)"
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
    """Return a sentence if the answers seem to number the orders otherwise than orders() does.

    It seems so if an answer has a number that no order has, and an order has neither a buyer of
    this rush nor a number that an answer has.
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
        "names: where these are two ways to number the orders, let read() and orders() name them "
        "in the same way"
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


def describe_judging_scope(
    *, repeatable: bool, listed: bool, shows_stock: bool, matched_by_number: int = 0
) -> dict[str, list[str]]:
    """Return what the verdict on a target is based on, and what it leaves open.

    Returns phrases, as the fields `judged` and `not_judged` of a run.

    repeatable         whether a buyer whose answer was lost may ask again
    listed             whether orders() returned a list
    shows_stock        whether stock() returned a number
    matched_by_number  how many orders were matched to a buyer by the number in an answer
    """
    orders = "how many orders there are, compared with the units"
    totals = "how many answers said sold, compared with the number of orders"
    retries = "asking again after an answer that was lost"
    # For each aspect: whether it is judged, the phrase if it is, and the phrase if it is not.
    aspects = (
        (
            listed,
            "every answer, compared with the order of its buyer",
            "which buyer has which order, since orders() returns a number: an order for the wrong "
            "buyer, or two for one buyer, may go unseen",
        ),
        (
            shows_stock,
            "the stock left, compared with the orders",
            "lost updates of the stock, since there is no stock()",
        ),
        (repeatable, retries, f"{retries}, since repeatable is False: no idempotency key"),
    )
    judged = [orders]
    if not listed:
        judged.append(totals)
    judged += [basis for is_judged, basis, _ in aspects if is_judged]
    if matched_by_number == 1:
        judged.append("1 order names no buyer of the rush: it is known by the number in the answer")
    elif matched_by_number:
        judged.append(
            f"{matched_by_number} orders name no buyer of the rush: they are known by the number "
            "in the answer"
        )
    not_judged = [gap for is_judged, _, gap in aspects if not is_judged]
    return {"judged": judged, "not_judged": not_judged}
