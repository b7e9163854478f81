"""The rules over locks and reads: fences rise, holds do not overlap, no write is stale.

Only one of them makes a sale not exact. `overlap`, and a fence that fell between grants, mean that
the lock failed; the storage may have repaired that: with its fence RedisLock sells exactly while a
stale holder still believes that it holds the lock. `stale_write` explains a lost update, which is a
violation by itself. A fence that fell between orders does count: the storage accepted what it had
to refuse, and totals that are right all the same are right by luck.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from loadtest.judge.intervals import Hold
from loadtest.judge.sale_record import Finding, Record, more


def fence_fell_over_orders(record: Record) -> Finding | None:
    """The storage accepts only fences above all that it accepted before."""
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
    """A grant that was asked for after another was made has a higher fence, and no two have the
    same one. Of two that were asked for at the same time either may be the first."""
    grants = [hold for hold in record.holds if hold.fence is not None]
    starts = [hold.start for hold in grants]
    highest: list[Hold] = []  # fence up to and including each grant
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
    """Every two holds that overlap; `holds` in the order of their starts."""
    inside: list[Hold] = []
    found: list[tuple[Hold, Hold]] = []
    for hold in holds:
        inside = [other for other in inside if other.end > hold.start]
        found += [(other, hold) for other in inside if not _same_owner(other, hold)]
        inside.append(hold)
    return found


def stale_write(record: Record) -> Finding | None:
    """The cause of a lost update: an order written over a stock that was read too early.

    Each order, in the order of the commits, should have read the stock that the one before it left.
    One that read more wrote over the decrements in between. With relative writes (`amount - 1`) an
    early read does no harm, so this needs a lost update, and a history.
    """
    if not record.history.events or record.lost_updates <= 0:
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


def _same_owner(one: Hold, other: Hold) -> bool:
    """Whether it is one grant recorded twice, or a holder that entered its own lock again."""
    return one.token != "" and one.token == other.token
