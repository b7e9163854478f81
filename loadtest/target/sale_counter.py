"""The orders and the stock of a target's shop after a rush.

A target is a third-party shop, described by a file that its user has written (target.py). The
shop may show only the number of its orders instead of a list, and it may show no stock. A promised
order is one that the shop has accepted and has not written yet. The shop is settled when it has
written all promised orders.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from loadtest.judge.finding import format_count
from loadtest.target.order_numbers import parse_canonical_number
from loadtest.target.target import Order, Target, TargetError, call_target_method, get_target_file

#: A list of orders, each with its number and its buyer's key, or only how many orders there are.
OrdersOrTotal = int | list[dict[str, Any]]
#: Seconds between two reads of a shop that has not written all orders yet.
POLL_INTERVAL_SECONDS = 0.1
#: The key of an order without a buyer, such as the order of a guest.
NO_BUYER = ""


@dataclass
class SaleCounter:
    """Counts the orders and the stock of one sale of a target.

    keys               the key of each buyer, by the buyer's name. The shop may list an order with
                       the name or with the key of its buyer
    requested_units    the units that the target's open() was told to put up for sale
    opening_stock      the stock that the shop showed after that; None if it shows no stock
    orders_before      the orders that the shop already had when the sale was opened
    was_still_writing  whether the last wait_until_settled() reached its time limit, although the
                       shop wrote orders in the second half of that time. More orders may follow
    """

    target: Target
    keys: Mapping[str, str]
    requested_units: int = 0
    opening_stock: int | None = None
    orders_before: OrdersOrTotal = 0
    was_still_writing: bool = False

    def open(self, stock: int) -> None:
        """Open a sale of `stock` units, and read the orders that the shop already has.

        Waits until the shop shows this stock, at most `settles_s` seconds. Raises ShopUnreachable,
        TargetError.
        """
        call_target_method(self.target, self.target.open, stock)
        self.requested_units = stock
        stock_shown = self.stock()
        deadline = time.monotonic() + self.target.settles_s
        # This project's shop shows its stock at once. If that stock is wrong, the judge reports it.
        may_lag = not self.target.is_own_shop
        while may_lag and stock_shown not in (None, stock):
            if time.monotonic() >= deadline:
                raise TargetError(
                    f"{get_target_file(self.target)}: {self.target.settles_s:g} s (settles_s) "
                    f"after open({stock}), stock() returned {stock_shown}: let open() put up "
                    f"{stock} units; if a cache shows them later, set settles_s higher"
                )
            time.sleep(POLL_INTERVAL_SECONDS)
            stock_shown = self.stock()
        self.opening_stock = stock_shown
        self.orders_before = self._read_all_orders()

    def stock(self) -> int | None:
        """Return the units left, or None if the shop shows no stock.

        Raises ShopUnreachable, TargetError.
        """
        units_left = call_target_method(self.target, self.target.stock)
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

        Return None if the shop does not know the number, which only this project's own shop may do.
        Raises ShopUnreachable, TargetError.
        """
        unwritten_count = call_target_method(self.target, self.target.unsettled)
        is_known = _is_whole_number(unwritten_count) and unwritten_count >= 0
        may_be_unknown = unwritten_count is None and self.target.is_own_shop
        if not is_known and not may_be_unknown:
            expected = "how many promised orders are not written yet, or leave the method out"
            raise self._make_wrong_return_error("unsettled", unwritten_count, expected)
        return unwritten_count

    def wait_until_settled(self, sold_count: int) -> list[str]:
        """Wait until the shop has written all orders, at most `settles_s` seconds.

        All orders are written if there is an order for each answer `sold`, the stock has fallen by
        the number of orders, and unsettled() is 0. If one of these conditions is still not met at
        the time limit, return a list with one sentence on it. Otherwise return an empty list. Do
        not wait if the sale is oversold, or if the shop is this project's own. Raises
        ShopUnreachable, TargetError.

        sold_count  how many buyers were answered `sold`
        """
        if self.target.is_own_shop:  # its stock() waits until all orders are written
            return []
        started_at = time.monotonic()
        last_count: int | None = None
        last_written_at: float | None = None
        while True:
            unsettled = self.unsettled()
            count = count_orders(self.orders())
            now = time.monotonic()
            if last_count is not None and count > last_count:
                last_written_at = now
            last_count = count
            sentences = self._describe_unsettled(sold_count, count, unsettled)
            if not sentences:
                return []
            if now >= started_at + self.target.settles_s:
                half_time = started_at + self.target.settles_s / 2
                self.was_still_writing = (
                    last_written_at is not None and last_written_at >= half_time
                )
                return sentences
            time.sleep(POLL_INTERVAL_SECONDS)

    def _describe_unsettled(
        self, sold_count: int, order_count: int, unsettled: int | None
    ) -> list[str]:
        """Return a list with one sentence on what the shop has not written yet.

        The list is empty if everything is written, or if the sale is oversold.

        sold_count   how many buyers were answered `sold`
        order_count  how many orders there are
        unsettled    how many promised orders are not written yet
        """
        if order_count > self.requested_units:
            return []
        time_phrase = f"{self.target.settles_s:g} s after the answers (settles_s)"
        if order_count < sold_count:
            orders = "1 order was" if order_count == 1 else f"{order_count} orders were"
            return [
                f"{sold_count} answers said sold, and {orders} there {time_phrase}: if a queue "
                "writes them later, set settles_s higher; if orders() reads one page of them, let "
                "it read the next pages, too"
            ]
        if self.opening_stock is not None:
            # This is never None: stock() raises TargetError if the shop no longer shows its stock.
            units_left = cast(int, self.stock())
            decrease = self.opening_stock - units_left
            if decrease > order_count:
                return [
                    f"{time_phrase}, stock() said {units_left}: it fell by {decrease}, and "
                    f"orders() shows {order_count}"
                ]
            if decrease < order_count:
                return [
                    f"{time_phrase}, stock() said {units_left}: if it falls later, set settles_s "
                    "higher; if it falls at dispatch, return the units that the shop would still "
                    "sell"
                ]
        return [f"{time_phrase}, unsettled() said {unsettled}"] if unsettled else []

    def orders(self) -> OrdersOrTotal:
        """Return the orders since the sale was opened, or only how many there are.

        Raises ShopUnreachable, TargetError.
        """
        orders = self._read_all_orders()
        before = self.orders_before
        if isinstance(orders, int):
            return max(0, orders - count_orders(before))
        if isinstance(before, int) and before > 0:
            raise TargetError(
                f"{get_target_file(self.target)}: orders() returned the number {before} when the "
                "sale was opened, and a list now: let it always return a list, so that earlier "
                "orders can be distinguished from new ones"
            )
        return _subtract_orders(orders, get_listed_orders(before))

    def describe_changed_earlier_orders(self) -> list[str]:
        """Return a list with one sentence if earlier orders are gone or have another buyer now.

        Earlier orders are those from before the sale. Without such a change the list is empty.

        Raises ShopUnreachable, TargetError.
        """
        orders_now = self._read_all_orders()
        changed_orders = self._find_changed_earlier_orders(orders_now)
        if not changed_orders:
            return []
        key_now_by_number = {
            order["order"]: order["key"] for order in get_listed_orders(orders_now)
        }
        number = changed_orders[0]["order"]
        further_orders = _describe_further_orders(changed_orders)
        if number in key_now_by_number:
            buyer_before = changed_orders[0]["key"] or "no buyer"
            buyer_now = key_now_by_number[number] or "no buyer"
            return [
                f"order {number} had the buyer {buyer_before} before this rush, and has "
                f"{buyer_now} now{further_orders}"
            ]
        return [
            f"order {number} existed before this rush, and is gone{further_orders}: if orders() "
            "leaves out earlier orders, let it return all; if a job deletes them, stop the job"
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

        Raises ShopUnreachable. Raises TargetError if orders() returned neither a list of orders nor
        their number, or if the list has an order twice.
        """
        shop_orders: Any = call_target_method(self.target, self.target.orders)
        if _is_whole_number(shop_orders) and shop_orders >= 0:
            return shop_orders
        if isinstance(shop_orders, str | bytes | Mapping) or not isinstance(shop_orders, Sequence):
            raise self._make_wrong_return_error(
                "orders", shop_orders, "a whole number, or a list of Order"
            )
        orders = [self._read_order(entry) for entry in shop_orders]
        for (number, key), times in Counter(map(_get_number_and_key, orders)).items():
            if times > 1:  # an order that is counted twice would look like an oversell
                buyer = f" of {key}" if key else ""
                raise TargetError(
                    f"{get_target_file(self.target)}: orders() lists order {number}{buyer} {times} "
                    "times: return each order once. Do two pages of the list overlap? If these are "
                    "several orders, return the primary key of each as its number"
                )
        return orders

    def _read_order(self, entry: Any) -> dict[str, Any]:
        """Return an entry of the list of orders() as a dict with the fields `order` and `key`.

        `order` is the number of the order, and `key` is the key of its buyer. Raises TargetError if
        `entry` is not an order.
        """
        if isinstance(entry, Order):
            buyer = NO_BUYER if entry.buyer is None else str(entry.buyer)
            order = {"order": entry.number, "key": self.keys.get(buyer, buyer)}
        elif isinstance(entry, Mapping) and {"order", "key"} <= entry.keys():
            order = dict(entry)  # as this project's shop lists its orders
        else:
            raise self._make_wrong_return_error(
                "orders", entry, "Orders in its list: Order(number, buyer)"
            )
        if self.target.is_own_shop:  # the judge itself checks these orders
            return order
        if order["order"] in (None, ""):
            raise self._make_wrong_return_error(
                "orders", entry, "each order with its number: Order(number, buyer)"
            )
        key = NO_BUYER if order["key"] is None else str(order["key"])
        return {**order, "order": parse_canonical_number(order["order"]), "key": key}

    def _make_wrong_return_error(self, method: str, returned: object, expected: str) -> TargetError:
        """Return the error for a method of the target that did not return what is expected."""
        file = get_target_file(self.target)
        return TargetError(f"{file}: {method}() returned {returned!r:.60}; return {expected}")


def describe_changes(before: OrdersOrTotal, now: OrdersOrTotal) -> list[str]:
    """Return one sentence on orders that have vanished, and one on orders that are new.

    A sentence is left out if there are no such orders. If `before` or `now` is only the number of
    orders, return one sentence if the number has changed.
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
    for orders, change in ((vanished_orders, "is gone"), (new_orders, "is new")):
        if orders:
            further_orders = _describe_further_orders(orders)
            sentences.append(f"order {orders[0]['order']} {change}{further_orders}")
    return sentences


def _describe_further_orders(orders: Sequence[object]) -> str:
    """Return the end of a sentence on the first of the orders: " (2 more)" for three orders.

    Return "" for a single order.
    """
    if len(orders) < 2:
        return ""
    return f" ({len(orders) - 1} more)"


def _is_whole_number(value: object) -> TypeGuard[int]:
    """Return whether a value is an int, but not True or False, which are ints in Python, too."""
    return isinstance(value, int) and not isinstance(value, bool)


def count_orders(orders: OrdersOrTotal) -> int:
    """Return how many orders there are."""
    if isinstance(orders, int):
        return orders
    return len(orders)


def get_listed_orders(orders: OrdersOrTotal) -> list[dict[str, Any]]:
    """Return the orders; an empty list if only their number is known."""
    if isinstance(orders, int):
        return []
    return orders


def _get_number_and_key(order: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what identifies an order: its number and its buyer's key.

    The number alone is not enough, because two buyers may have orders of the same number.
    """
    return order["order"], order["key"]


def _subtract_orders(
    orders: list[dict[str, Any]], subtracted_orders: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the orders that are not in the second list. They are compared by number and key."""
    subtracted = {_get_number_and_key(order) for order in subtracted_orders}
    return [order for order in orders if _get_number_and_key(order) not in subtracted]
