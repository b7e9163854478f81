"""The rules over the stock that each purchase saw, and over what a sale leaves behind: no write is
stale, no unit is sold twice, no key stays."""

from collections.abc import Iterator, Sequence

from loadtest.judge.finding import Case, of_order
from loadtest.judge.rule import rule
from loadtest.judge.sale_record import Record

#: What to do about promises of another shop.
QUEUE_STANDS = "set settles_s higher, or find out why the queue stands still"


@rule("stale_write")
def stale_write(record: Record) -> Iterator[Case]:
    """An order written over a stock that was read too early.

    Each order, in the order of the commits, should have read the stock that the one before it left.
    One that read more wrote over the decrements in between: the cause of a lost update, unless
    somebody put the stock right afterwards. With relative writes (`amount - 1`) an early read does
    no harm: where it is not known that a strategy writes what it read less one, this needs a lost
    update. Where buyers write different rows, what one saw is not what the one before it left.
    """
    explains = record.lost_updates > 0
    if not (record.evidence.one_row and (explains or record.evidence.absolute)):
        return
    read = {c.attempt: c.amount for c in record.commits if c.amount is not None}
    seen = [read.get(order["key"], order.get("stock_seen")) for order in record.committed]
    known = [amount for amount in seen if amount is not None]
    if len(known) < len(seen):
        return
    stale = stale_writes(record.opened, known)
    for place, overtaken in stale:
        order, *erased = record.committed[place], *record.committed[place - overtaken : place]
        numbers = ", ".join(str(one["order"]) for one in erased)
        what = (
            f"order {order['order']} was written over a stock read before the commit of {numbers}, "
            f"{'whose decrement is lost' if explains else 'and the stock hides it'}"
        )
        yield Case(what, order["key"], *(one["key"] for one in erased), spoils=not explains)
    for place, amount in enumerate(known if not (stale or explains) else ()):
        order, left = record.committed[place], record.opened - place
        if amount != left:
            yield of_order(order, f"was sold out of a stock of {amount}, and {left} were left")


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


@rule("stale_write")
def stock_that_was_not_there(record: Record) -> Iterator[Case]:
    """Whatever the strategy, a unit is sold out of a stock of at least one, and of no more than the
    sale opened with: else it was of another sale, or of none."""
    for order in record.orders:
        seen = order.get("stock_seen")
        if seen is not None and not 1 <= seen <= record.opened:
            opened = f"and the sale opened with {record.opened}"
            yield of_order(order, f"was sold out of a stock of {seen}, {opened}")


@rule("stale_write")
def unit_sold_twice(record: Record) -> Iterator[Case]:
    """Where what an order saw is the number of its unit, no two have the same one. With as many
    orders too many as units that went without one, the totals are right.

    A server of promises that lost some begins to count anew, and may promise a number again.
    """
    may_promise_again = not (record.undisturbed or record.evidence.numbered)
    if not record.evidence.own_unit or may_promise_again:
        return
    owner: dict[int, object] = {}
    for order in record.orders:
        unit, number = order.get("stock_seen"), order["order"]
        if unit is not None and owner.setdefault(unit, number) != number:
            what = f"orders {owner[unit]} and {number} were both sold unit {unit}"
            yield Case(what, str(order["key"]))


@rule("false_sold_out", recorded=True)
def sold_out_with_units_left(record: Record) -> Iterator[Case]:
    """Where a purchase that finds units left takes one or tries anew, nobody is answered `sold_out`
    by a node that found some at each look."""
    if record.evidence.one_row and not record.evidence.absolute:
        return
    for request in record.requests:
        key = request.attempt
        looks = [event for event in record.of_nodes.get(key, ()) if event["f"] == "after_read"]
        amounts = [event.get("amount") for event in looks if request.covers(event["t"])]
        seen = [amount for amount in amounts if amount is not None]
        if request.outcome == "sold_out" and seen and min(seen) > 0:
            left = f"a node that had found {min(seen)} left"
            yield Case(f"{key} was answered sold_out by {left}", key)


@rule("orphan_lock")
def orphan_lock(record: Record) -> Iterator[Case]:
    """No lock is left that nobody holds."""
    if record.orphan_lock:
        yield Case(f"{record.orphan_lock} is still there, and nobody holds it", spoils=False)


@rule("leaked_key")
def leaked_key(record: Record) -> Iterator[Case]:
    """No key is left on a lock server that no lock leaves there."""
    for key in record.leaked:
        yield Case(f"{key} was left on the lock server")


@rule("unsettled", voids=True)
def unsettled(record: Record) -> Iterator[Case]:
    """Every promise has its order."""
    if record.unsettled != 0:
        many = "nobody knows how many" if record.unsettled is None else record.unsettled
        todo = "is manage.py settle running?" if record.is_own_shop else QUEUE_STANDS
        yield Case(f"{many} promised orders are not written: {todo}")
