"""The rules on the stock that each purchase saw, and on what is left after a sale.

No write is based on an outdated read, no unit is sold twice, no lock or other key stays on a lock
server, and every promised order (one that is accepted but not yet in the database) is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadtest.judge.finding import Case, make_order_case
from loadtest.judge.intervals import OrderNumber
from loadtest.judge.rule import rule
from loadtest.judge.sale_record import SaleRecord

#: What to do in this project's shop about promised orders that are not written to the database.
SETTLE_HINT = "is manage.py settle running?"
#: What to do in another shop about promised orders that are not written to the database.
SETTLE_HINT_ELSEWHERE = "set settles_s higher, or find out why the queue stands still"


@rule("stale_write")
def stale_write(record: SaleRecord) -> Iterator[Case]:
    """Rule: no purchase wrote a stock that it had computed from an outdated read.

    Each purchase should read the stock that the previous commit has written. If it reads a higher
    stock and writes that number minus one, it erases the decrements that it did not read.

    The rule applies to strategies that compute the new stock from the stock that they read. It does
    not apply to strategies whose buyers write different rows.

    Strategies that write `amount = amount - 1` in SQL do not depend on the read. For them the rule
    applies only if decrements are missing from the stock.

    If the rule finds no erased decrement, each purchase must have read exactly the stock that the
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
        effect = "no decrement is missing from the stock"
        if has_lost_updates:
            effect = "their decrements are lost"
        yield Case(
            f"order {order['order']} wrote a stock that was read before these orders were "
            f"committed: {numbers}; {effect}",
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
    """Yield a case for each order whose purchase read another stock than earlier orders had left.

    stocks_seen  the stock that each order read, in the sequence of `orders`
    """
    for index, (order, stock_seen) in enumerate(zip(orders, stocks_seen, strict=True)):
        stock_left = opening_stock - index
        if stock_seen != stock_left:
            yield make_order_case(
                order, f"was sold from a stock of {stock_seen}, but {stock_left} units were left"
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
    """Return the index of each order that erased decrements, and the number of erased decrements.

    If an order read a stock that is higher by 3 than the stock left by the order before it, its
    write erased the decrements of the 3 orders before it. The first order cannot erase any.

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
def impossible_stock_seen(record: SaleRecord) -> Iterator[Case]:
    """Rule: the stock that an order saw is at least 1, and at most the stock at the sale's opening.

    Otherwise the sold unit did not belong to this sale. The rule applies to every strategy.
    """
    for order in record.orders:
        stock_seen = order.get("stock_seen")
        if stock_seen is not None and not 1 <= stock_seen <= record.opening_stock:
            yield make_order_case(
                order,
                f"was sold from a stock of {stock_seen}, but the sale opened with "
                f"{record.opening_stock} units",
            )


@rule("stale_write")
def unit_sold_twice(record: SaleRecord) -> Iterator[Case]:
    """Rule: no two orders have the same unit.

    The totals alone do not always show such a pair: they are right if another unit has left the
    stock without an order.

    The rule applies only to strategies that number the units. Under these strategies the stock
    that an order saw is the number of its unit.
    """
    # A fault may delete promised orders (accepted, but not in the database yet) from Redis. Then
    # Redis may promise the units of these orders to other buyers.
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
    """Rule: a node does not answer `sold_out` if every read for the request found units left.

    The rule does not apply to strategies whose buyers all begin by decrementing the stock in the
    product's row in SQL (`amount - 1`). Such a decrement does not depend on the read, and the stock
    may have run out between the read and the decrement.
    """
    mechanism = record.mechanism
    decrements_in_sql = not mechanism.writes_absolute_stock
    if mechanism.writes_product_row_first and decrements_in_sql:
        return
    for request in record.requests:
        if request.outcome != "sold_out":
            continue
        key = request.attempt
        events = record.node_events_by_key.get(key, ())
        reads = (event for event in events if event["f"] == "after_read")
        stocks_seen = (read.get("amount") for read in reads if request.may_be_active_at(read["t"]))
        lowest_stock = min((stock for stock in stocks_seen if stock is not None), default=0)
        if lowest_stock > 0:
            yield Case(
                f"{key} was answered sold_out by a node that had read a stock of {lowest_stock}",
                key,
            )


@rule("orphan_lock")
def orphan_lock(record: SaleRecord) -> Iterator[Case]:
    """Rule: no lock is left without a holder.

    If such a lock blocked the buyers, the verdict is `deadlock` or `undersold` anyway. If it did
    not, the sale may be exact.
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
    """Rule: every promised order is written to the database before the sale is judged."""
    if record.unsettled_promises == 0:
        return
    count = record.unsettled_promises
    promises = "an unknown number of" if count is None else count
    hint = SETTLE_HINT if record.is_own_shop else SETTLE_HINT_ELSEWHERE
    yield Case(f"{promises} promised orders are not written: {hint}")
