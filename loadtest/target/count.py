"""What a target's shop has at the end of a rush, and the judgement on it.

A shop may know less than the judge would like to: only how many orders there are, no stock, no
idempotency keys. What is judged and what is not stands in the run as `judged` and `not_judged`.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.judge.intervals import Request
from loadtest.target.target import Order, Target, TargetError, call, file_of

#: How many orders there are, or each with its number and its buyer's name or key.
Found = int | list[dict[str, Any]]


@dataclass
class Count:
    """The orders and the stock of one sale of a target."""

    target: Target
    keys: Mapping[str, str]  # of each buyer by its name: an Order may name its buyer by either
    opened: int | None = None  # units that the shop showed when the sale was opened, if any
    before: Found = 0  # the orders that there were then

    def open(self, stock: int) -> None:
        """Open a sale, and count what is there. Raises ShopUnreachable, TargetError."""
        call(self.target, self.target.open, stock)
        self.opened = self.stock()
        if self.opened not in (None, stock) and not self.target.sale:
            raise TargetError(
                f"{file_of(self.target)}: open({stock}) put up {self.opened} units, by stock(): "
                "let it put up as many as it is given"
            )
        self.before = self._orders()

    def stock(self) -> int | None:
        """Units left, None if the shop shows none. Raises ShopUnreachable, TargetError."""
        left = call(self.target, self.target.stock)
        if left is not None and not _is_number(left):
            raise self._wrong(
                "stock", left, "a whole number, or None where the shop shows no stock"
            )
        return left

    def settle(self, sold: int) -> None:
        """Wait until the shop has written an order for each of so many answers `sold`, and nothing
        is `unsettled`; at most `settles_s` seconds. Raises ShopUnreachable, TargetError."""
        deadline = time.monotonic() + self.target.settles_s
        while time.monotonic() < deadline:
            if call(self.target, self.target.unsettled) == 0:
                found = self.orders()
                if (found if isinstance(found, int) else len(found)) >= sold:
                    return
            time.sleep(0.1)

    def orders(self) -> Found:
        """The orders since the sale was opened, each with the key of its buyer, or their number.
        Raises ShopUnreachable, TargetError."""
        found, before = self._orders(), self.before
        if isinstance(found, int):
            return max(0, found - before) if isinstance(before, int) else found
        known = () if isinstance(before, int) else {one["order"] for one in before}
        return [one for one in found if one["order"] not in known]

    def _orders(self) -> Found:
        found: Any = call(self.target, self.target.orders)
        if _is_number(found):
            return int(found)
        if isinstance(found, str | bytes | Mapping) or not isinstance(found, Sequence):
            raise self._wrong("orders", found, "a whole number, or a list of Order")
        orders = []
        for one in found:
            order = one
            if isinstance(one, Order):  # this project's own shop has keys, taken as they are
                buyer = str(one.buyer)
                order = {"order": one.number, "key": self.keys.get(buyer, buyer)}
            if not isinstance(order, Mapping) or not {"order", "key"} <= order.keys():
                raise self._wrong("orders", one, "Orders in its list: Order(number, buyer)")
            orders.append({**order, "order": whole(order["order"]), "key": str(order["key"])})
        for number, times in Counter(one["order"] for one in orders).items():
            if times > 1:  # counted, it would be an oversell
                what = f"orders() names order {number} twice: return each once"
                raise TargetError(f"{file_of(self.target)}: {what}; do two pages of it overlap?")
        return orders

    def _wrong(self, method: str, returned: object, wanted: str) -> TargetError:
        shown = f"{returned!r:.60}"
        return TargetError(f"{file_of(self.target)}: {method}() returned {shown}; return {wanted}")


def _is_number(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool)


def whole(number: object) -> int | str:
    """A number that is written as text is that number; another word is text, as answers have it: a
    database may give a UUID."""
    text = str(number)
    return int(text) if text.isdecimal() and text == str(int(text)) else text


def match(found: Found, requests: Sequence[Request], *, keyed: bool) -> list[dict[str, Any]]:
    """The orders as the judge takes them; the requests are changed in place to fit them.

    Where there is only a number of orders, each answer `sold` gets one, then each answer that left
    it open, and what is left belongs to nobody: the totals are judged, and no single buyer. Order
    numbers that are words become whole numbers. An answer that names no order gets its buyer's.

    Raises TargetError where no order names a buyer of the rush, nor any answer an order.
    """
    if isinstance(found, int):
        orders = _assigned(found, requests)
    else:
        orders = found if keyed else _owned(found, requests)
    words: dict[str, int] = {}

    def place(number: int | str) -> int:
        number = whole(number)
        return number if isinstance(number, int) else words.setdefault(number, -1 - len(words))

    orders = [{**order, "order": place(order["order"])} for order in orders]
    number_of = {order["key"]: order["order"] for order in orders}
    for request in requests:
        named: Any = request.order
        if request.outcome == "sold" and (named is None or isinstance(found, int)):
            request.order = number_of.get(request.attempt)
        elif named is not None:
            request.order = place(named)
    return orders


def _owned(orders: list[dict[str, Any]], requests: Sequence[Request]) -> list[dict[str, Any]]:
    """The orders with the keys of their buyers: as they name them, or, where none of them names
    a buyer of this rush, as the answers name the orders. Raises TargetError."""
    asked = {one.attempt for one in requests}
    if not orders or not asked or any(order["key"] in asked for order in orders):
        return orders
    owner = {whole(one.order): one.attempt for one in requests if one.order is not None}
    if not any(order["order"] in owner for order in orders):
        raise TargetError(
            f"orders() names {orders[0]['key']!r}, and no buyer of this rush: return buyer.name "
            "(buyer-0, buyer-1, ...) or buyer.key with each order, or let read() name the order: "
            "sold(order=12)"
        )
    return [{**order, "key": owner.get(order["order"], order["key"])} for order in orders]


def _assigned(count: int, requests: Sequence[Request]) -> list[dict[str, Any]]:
    """As many orders, each with the key of a buyer who may have it."""
    sold = [request.attempt for request in requests if request.outcome == "sold"]
    sold += [request.attempt for request in requests if request.type == "info"]
    keys = list(dict.fromkeys(sold))[:count]
    keys += [f"nobody-{number}" for number in range(1, count - len(keys) + 1)]
    return [{"order": number, "key": key} for number, key in enumerate(keys, 1)]


def scope(target: Target, *, listed: bool, shows_stock: bool) -> dict[str, list[str]]:
    """What the verdict on a target is based on, and what it says nothing of.

    listed       whether orders() returned a list
    shows_stock  whether stock() returned a number
    """
    orders = "how many orders there are, compared with the units"
    totals = "how many answers said sold, compared with the number of orders"
    lost = "asking again after an answer that was lost"
    facts = (
        (listed, "every answer, compared with the order of its buyer",
         "which buyer has which order, since orders() returns a number: an order for the wrong "
         "buyer, or two for one buyer, may go unseen"),
        (shows_stock, "the stock left, compared with the orders",
         "lost updates of the stock, since there is no stock()"),
        (target.repeatable, lost, f"{lost}, since repeatable is False: no idempotency key"),
    )  # fmt: skip
    judged = [orders, *([] if listed else [totals]), *(yes for shown, yes, _ in facts if shown)]
    return {"judged": judged, "not_judged": [no for shown, _, no in facts if not shown]}
