"""The rules over locks and reads: fences rise, holds do not overlap, no write is stale.

Only one of them spoils an exact sale. `overlap` and a fence that fell over the grants say that the
lock failed, and the storage may have made up for it: RedisLock with its fence sells exactly while a
stale holder still believes in its lock. `stale_write` comes with the lost update that it explains,
which spoils by itself. A fence that fell over the orders does spoil: the storage took what it was
to refuse, and totals that are right nevertheless are right by luck.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from loadtest.judge.history import Hold
from loadtest.judge.sale_record import Finding, Record, more


def fence_fell_over_orders(record: Record) -> Finding | None:
    """The storage accepts no fence that is not above all that it has accepted."""
    fenced = [order for order in record.committed if order.get("fence") is not None]
    for earlier, later in pairwise(fenced):
        if later["fence"] <= earlier["fence"]:
            what = (
                f"order {later['order']} was accepted with fence {later['fence']} after order "
                f"{earlier['order']} with fence {earlier['fence']}"
            )
            return Finding("fence_fell", what, (earlier["key"], later["key"]))
    return None


def fence_fell_over_grants(record: Record) -> Finding | None:
    """A grant that was asked for after another one was there has a higher fence; and no two grants
    have the same one. Of two that were asked for at the same time either may be the first."""
    grants = [hold for hold in record.holds if hold.fence is not None]
    starts = [hold.start for hold in grants]
    highest: list[Hold] = []  # of each grant and those before it
    seen: dict[int, Hold] = {}
    for grant in grants:
        assert grant.fence is not None
        before = bisect_left(starts, grant.asked)
        earlier = highest[before - 1] if before else None
        if earlier is None or (earlier.fence or 0) < grant.fence:
            earlier = seen.get(grant.fence)
        if earlier is not None and not _same_owner(earlier, grant):
            what = (
                f"{grant.attempt} was granted fence {grant.fence} after {earlier.attempt} had "
                f"been granted {earlier.fence}"
            )
            return Finding("fence_fell", what, (earlier.attempt, grant.attempt), spoils=False)
        seen[grant.fence] = grant
        top = highest[-1] if highest else grant
        highest.append(grant if (top.fence or 0) < grant.fence else top)
    return None


def overlap(record: Record) -> Finding | None:
    """No two holders are inside at the same time."""
    found = overlaps(record.holds)
    if not found:
        return None
    first, second = found[0]
    together = (min(first.end, second.end) - second.start) / 1e6
    what = f"{first.attempt} and {second.attempt} held the lock together for {together:.1f} ms"
    return Finding("overlap", what + more(found), (first.attempt, second.attempt), spoils=False)


def overlaps(holds: Sequence[Hold]) -> list[tuple[Hold, Hold]]:
    """Every two holders that were inside together; `holds` in the order of their starts."""
    inside: list[Hold] = []
    found: list[tuple[Hold, Hold]] = []
    for hold in holds:
        inside = [other for other in inside if other.end > hold.start]
        found += [(other, hold) for other in inside if not _same_owner(other, hold)]
        inside.append(hold)
    return found


def stale_write(record: Record) -> Finding | None:
    """What explains a lost update: an order committed on a read that others had overtaken.

    Orders in the order of their commits: each is to find the stock that the one before it left.
    One that read more wrote over the decrements in between. Where writes are relative
    (`amount - 1`) reads may be old without harm, so only with a lost update, and only told of a
    sale that has a history.
    """
    if not record.history or record.lost_updates <= 0:
        return None
    read = {c.attempt: c.amount for c in record.commits if c.amount is not None}
    seen = [read.get(order["key"], order.get("stock_seen")) for order in record.committed]
    if None in seen:
        return None
    found = stale_writes(record.initial_stock, [amount for amount in seen if amount is not None])
    if not found:
        return None
    number, overtaken = found[0]
    stale, erased = record.committed[number], record.committed[number - overtaken : number]
    numbers = ", ".join(str(order["order"]) for order in erased)
    what = (
        f"order {stale['order']} was written over a stock read before the commit of {numbers}, "
        f"whose decrement is lost{more(found)}"
    )
    keys = tuple(order["key"] for order in (stale, *erased))
    return Finding("stale_write", what, keys, spoils=False)


def stale_writes(initial_stock: int, seen: Sequence[int]) -> list[tuple[int, int]]:
    """Which writes erased decrements: the place of each, and of how many just before it.

    seen  the stock that each order had read, in the order of their commits
    """
    found = []
    left = initial_stock
    for place, amount in enumerate(seen):
        if place and amount > left:
            found.append((place, min(place, amount - left)))
        left = amount - 1
    return found


def _same_owner(one: Hold, other: Hold) -> bool:
    """Whether it is one grant told twice, or a holder that entered again."""
    return one.token != "" and one.token == other.token
