"""The rules on the stock that each purchase saw, and on the locks and promises left after a sale.

No write is stale, no unit is sold twice, and no key stays on a lock server.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadtest.judge.finding import Case, make_order_case
from loadtest.judge.intervals import OrderNumber
from loadtest.judge.rule import rule
from loadtest.judge.sale_record import SaleRecord

#: What to do about unsettled promises in this project's shop.
SETTLE_HINT = "is manage.py settle running?"
#: What to do about unsettled promises in another shop.
SETTLE_HINT_ELSEWHERE = "set settles_s higher, or find out why the queue stands still"


@rule("stale_write")
def stale_write(record: SaleRecord) -> Iterator[Case]:
    """Rule: no purchase wrote a stock that it had computed from an outdated read.

    Each order should have read the stock that the order committed before it left. An order that
    read more erased decrements of other orders.

    The rule applies if updates were lost, or if the strategy writes the number that it read, less
    one. A relative write (`amount - 1`) is not harmed by an outdated read. The rule does not apply
    to strategies whose buyers write different rows.

    Without stale writes and lost updates, each order must have read exactly the stock that the
    orders before it left.
    """
    has_lost_updates = record.lost_updates > 0
    writes_absolute_stock = has_lost_updates or record.mechanism.writes_absolute_stock
    if not (record.mechanism.writes_product_row_first and writes_absolute_stock):
        return
    orders = record.orders_sorted_by_number
    stocks_seen = _list_known_stocks_seen(record)
    if len(stocks_seen) < len(orders):  # the stock that some order saw is unknown
        return
    stale_writes = find_stale_writes(record.opening_stock, stocks_seen)
    for index, erased_count in stale_writes:
        order = orders[index]
        erased_orders = orders[index - erased_count : index]
        numbers = ", ".join(str(erased["order"]) for erased in erased_orders)
        erased_keys = [erased["key"] for erased in erased_orders]
        effect = "whose decrement is lost" if has_lost_updates else "and the stock does not show it"
        yield Case(
            f"order {order['order']} was written over a stock read before the commit of {numbers}, "
            f"{effect}",
            order["key"],
            *erased_keys,
            # If updates were lost, the finding `lost_update` already prevents an exact verdict.
            prevents_exact=not has_lost_updates,
        )
    if not stale_writes and not has_lost_updates:
        yield from _find_wrong_reads(record.opening_stock, orders, stocks_seen)


def _find_wrong_reads(
    opening_stock: int, orders: Sequence[Mapping[str, Any]], stocks_seen: Sequence[int]
) -> Iterator[Case]:
    """Yield a case for each order that did not read the stock left by the orders before it.

    stocks_seen  the stock that each order read, in the sequence of `orders`
    """
    for index, (order, stock_seen) in enumerate(zip(orders, stocks_seen, strict=True)):
        stock_left = opening_stock - index
        if stock_seen != stock_left:
            yield make_order_case(
                order, f"was sold out of a stock of {stock_seen}, and {stock_left} were left"
            )


def _list_known_stocks_seen(record: SaleRecord) -> list[int]:
    """Return the stock that each order saw, sorted by order number. Unknown stocks are left out."""
    stocks_read = {
        commit.attempt: commit.stock_seen
        for commit in record.commits
        if commit.stock_seen is not None
    }
    stocks_seen = (
        stocks_read.get(order["key"], order.get("stock_seen"))
        for order in record.orders_sorted_by_number
    )
    return [stock_seen for stock_seen in stocks_seen if stock_seen is not None]


def find_stale_writes(initial_stock: int, stocks_seen: Sequence[int]) -> list[tuple[int, int]]:
    """Return the index of each write that erased decrements, and how many it erased.

    If an order read 3 units more than the order before it had left, its write erases the 3
    decrements just before it. The first order has no decrement before it.

    stocks_seen  the stock that each order read, in the sequence of the commits
    """
    stale_writes = []
    stock_left = initial_stock
    for index, stock_seen in enumerate(stocks_seen):
        if index > 0 and stock_seen > stock_left:
            stale_writes.append((index, min(index, stock_seen - stock_left)))
        stock_left = stock_seen - 1
    return stale_writes


@rule("stale_write")
def stock_that_was_not_there(record: SaleRecord) -> Iterator[Case]:
    """Rule: the stock that an order saw is at least 1, and at most the stock at the sale's opening.

    If an order saw any other stock, its unit was not of this sale. The rule applies to every
    strategy.
    """
    for order in record.orders:
        stock_seen = order.get("stock_seen")
        if stock_seen is not None and not 1 <= stock_seen <= record.opening_stock:
            yield make_order_case(
                order,
                f"was sold out of a stock of {stock_seen}, and the sale opened with "
                f"{record.opening_stock}",
            )


@rule("stale_write")
def unit_sold_twice(record: SaleRecord) -> Iterator[Case]:
    """Rule: no two orders have the same unit.

    The totals alone do not show such a pair if another unit left the stock without an order.

    The rule applies only to strategies that number the units: the stock that an order saw is the
    number of its unit.
    """
    # A fault may make Redis forget promised orders. Then Redis may promise their units again.
    may_promise_again = record.mechanism.promises and not record.undisturbed
    if not record.mechanism.has_unit_numbers or may_promise_again:
        return
    order_number_by_unit: dict[int, OrderNumber] = {}
    for order in record.orders:
        unit = order.get("stock_seen")
        if unit is None:
            continue
        order_number = order["order"]
        first_order_number = order_number_by_unit.setdefault(unit, order_number)
        if first_order_number != order_number:
            yield Case(
                f"orders {first_order_number} and {order_number} were both sold unit {unit}",
                order["key"],
            )


@rule("false_sold_out", needs_node_records=True)
def sold_out_with_units_left(record: SaleRecord) -> Iterator[Case]:
    """Rule: no buyer is answered `sold_out` by a node that saw units left in every read.

    The rule does not apply to strategies that decrement the product's row in SQL (`amount - 1`),
    because the stock may have run out after the read.
    """
    if record.mechanism.writes_product_row_first and not record.mechanism.writes_absolute_stock:
        return
    for request in record.requests:
        if request.outcome != "sold_out":
            continue
        key = request.attempt
        events = record.node_events_by_key.get(key, ())
        reads = (event for event in events if event["f"] == "after_read")
        stocks_seen = (read.get("amount") for read in reads if request.covers(read["t"]))
        lowest_stock = min((stock for stock in stocks_seen if stock is not None), default=0)
        if lowest_stock > 0:
            yield Case(
                f"{key} was answered sold_out by a node that had seen {lowest_stock} left", key
            )


@rule("orphan_lock")
def orphan_lock(record: SaleRecord) -> Iterator[Case]:
    """Rule: no lock is left without a holder.

    If such a lock stopped the sale, the verdict is `deadlock` or `undersold`; otherwise the sale
    may be exact.
    """
    if record.orphan_lock:
        yield Case(f"{record.orphan_lock} is still there, without a holder", prevents_exact=False)


@rule("leaked_key")
def leaked_key(record: SaleRecord) -> Iterator[Case]:
    """Rule: no key is left on a lock server, except PERMANENT_KEYS (mechanism.py)."""
    for key in record.leaked_keys:
        yield Case(f"{key} was left on the lock server")


@rule("unsettled", voids_record=True)
def unsettled(record: SaleRecord) -> Iterator[Case]:
    """Rule: every promised order is written before the sale is judged."""
    if record.unsettled_promises == 0:
        return
    count = record.unsettled_promises
    promises = "an unknown number of" if count is None else count
    hint = SETTLE_HINT if record.is_own_shop else SETTLE_HINT_ELSEWHERE
    yield Case(f"{promises} promised orders are not written: {hint}")
