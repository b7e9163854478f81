"""The rules over the stock that each purchase saw: no write is stale, no unit is sold twice."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.judge.sale_record import Finding, Record, more


def stale_write(record: Record) -> Finding | None:
    """An order written over a stock that was read too early.

    Each order, in the order of the commits, should have read the stock that the one before it left.
    One that read more wrote over the decrements in between: the cause of a lost update, unless
    somebody put the stock right afterwards. With relative writes (`amount - 1`) an early read does
    no harm: where it is not known that a strategy writes what it read less one, this needs a lost
    update.
    """
    explains = record.lost_updates > 0
    if not record.evidence.one_row:
        return None  # many rows: what a buyer saw is not what the buyer before it left
    if not record.history.events or not (explains or record.evidence.absolute):
        return None
    read = {c.attempt: c.amount for c in record.commits if c.amount is not None}
    seen = [read.get(order["key"], order.get("stock_seen")) for order in record.committed]
    if None in seen:
        return None
    known = [amount for amount in seen if amount is not None]
    found = stale_writes(record.opened, known)
    if not found:
        return None if explains else _not_one_less(record, known)
    number, overtaken = found[0]
    stale, erased = record.committed[number], record.committed[number - overtaken : number]
    numbers = ", ".join(str(order["order"]) for order in erased)
    what = (
        f"order {stale['order']} was written over a stock read before the commit of {numbers}, "
        f"{'whose decrement is lost' if explains else 'and the stock hides it'}{more(found)}"
    )
    keys = tuple(order["key"] for order in (stale, *erased))
    return Finding("stale_write", what, keys, spoils=not explains)


def _not_one_less(record: Record, seen: Sequence[int]) -> Finding | None:
    """The first order that did not read what the orders before it had left."""
    for place, amount in enumerate(seen):
        if amount != record.opened - place:
            order = record.committed[place]
            left = f"{record.opened - place} were left"
            what = f"order {order['order']} was sold out of a stock of {amount}, and {left}"
            return Finding("stale_write", what, (str(order["key"]),))
    return None


def stale_writes(initial_stock: int, seen: Sequence[int]) -> list[tuple[int, int]]:
    """The writes that erased decrements: the place of each, and how many orders just before it.

    seen  the stock that each order had read, in the order of the commits
    """
    found = []
    left = initial_stock
    for place, amount in enumerate(seen):
        if place and amount > left:
            found.append((place, min(place, amount - left)))
        left = amount - 1
    return found


def stock_that_was_not_there(record: Record) -> Finding | None:
    """Whatever the strategy, a unit is sold out of a stock of at least one, and of no more than the
    sale opened with: else it was of another sale, or of none."""
    found = [
        (str(order["key"]), f"order {order['order']} was sold out of a stock of {seen}")
        for order in record.orders
        if (seen := order.get("stock_seen")) is not None and not 1 <= seen <= record.opened
    ]
    if not found:
        return None
    what = f"{found[0][1]}, and the sale opened with {record.opened}{more(found)}"
    return Finding("stale_write", what, tuple(key for key, _ in found))


def unit_sold_twice(record: Record) -> Finding | None:
    """Where what an order saw is the number of its unit, no two have the same one. With as many
    orders too many as units that went without one, the totals are right.

    A server of promises that lost some begins to count anew, and may promise a number again.
    """
    if not record.evidence.own_unit or not (record.asked.undisturbed or record.evidence.numbered):
        return None
    owner: dict[int, object] = {}
    for order in record.orders:
        unit = order.get("stock_seen")
        if unit is not None and owner.setdefault(unit, order["order"]) != order["order"]:
            what = f"orders {owner[unit]} and {order['order']} were both sold unit {unit}"
            return Finding("stale_write", what, (str(order["key"]),))
    return None


def sold_out_with_units_left(record: Record) -> Finding | None:
    """Where a purchase that finds units left takes one or tries anew, nobody is answered `sold_out`
    by a node that found some at each look."""
    evidence = record.evidence
    if not record.asked.recorded or not (evidence.absolute or not evidence.one_row):
        return None
    looks: dict[str, list[tuple[int, int]]] = {}
    for event in record.history.events:
        if event["by"] == "node" and event["f"] == "after_read" and "amount" in event:
            looks.setdefault(event["attempt"], []).append((event["t"], event["amount"]))
    found = []
    for request in record.requests:
        seen = [left for t, left in looks.get(request.attempt, ()) if request.covers(t)]
        if request.outcome == "sold_out" and seen and min(seen) > 0:
            found.append((request.attempt, min(seen)))
    if not found:
        return None
    key, left = found[0]
    what = f"{key} was answered sold_out by a node that had found {left} left{more(found)}"
    return Finding("false_sold_out", what, tuple(key for key, _ in found))
