"""The rules over locks: fences rise, holds do not overlap, everybody buys inside a hold.

`overlap`, and a fence that fell between grants, mean that the lock failed. Where something took the
lock from its holder the storage may have repaired that: with its fence RedisLock sells exactly
while a stale holder still believes that it holds the lock. Where nothing did, they spoil the sale.
All other findings spoil it in any case: the storage accepted what it had to refuse, or the lock was
not used, and totals that are right are right by luck.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter

from loadtest.judge.finding import Case, of_order
from loadtest.judge.intervals import Commit, LockHold
from loadtest.judge.rule import rule
from loadtest.judge.sale_record import Record


@rule("fence_fell")
def fence_fell_over_orders(record: Record) -> Iterator[Case]:
    """The storage accepts only fences above all that it accepted before."""
    fenced = [order for order in record.committed if order.get("fence") is not None]
    for earlier, later in pairwise(fenced):
        if later["fence"] <= earlier["fence"]:
            what = (
                f"order {later['order']} was accepted with fence {later['fence']} after order "
                f"{earlier['order']} with fence {earlier['fence']}"
            )
            yield Case(what, earlier["key"], later["key"])


@rule("fence_fell")
def fence_fell_over_grants(record: Record) -> Iterator[Case]:
    """A grant that was asked for after another was made has a higher fence, and no two have the
    same one. Of two that were asked for at the same time either may be the first."""
    grants = [(hold.fence, hold) for hold in record.holds if hold.fence is not None]
    starts = [grant.start for _, grant in grants]
    highest = list(accumulate(grants, lambda *two: max(two, key=itemgetter(0))))
    seen: dict[int, LockHold] = {}
    for fence, grant in grants:
        before = bisect_left(starts, grant.asked_at)
        top, earlier = highest[before - 1] if before else (fence - 1, None)
        if top < fence:
            earlier = seen.get(fence)
        if earlier is not None and not _same_owner(earlier, grant):
            what = (
                f"{grant.attempt} was granted fence {fence} after {earlier.attempt} had "
                f"been granted {earlier.fence}"
            )
            keys = earlier.attempt, grant.attempt
            yield Case(what, *keys, spoils=record.undisturbed)
        seen[fence] = grant


@rule("overlap")
def overlap(record: Record) -> Iterator[Case]:
    """No two holders are inside at the same time, but for one whose lock was taken away."""
    robbed = frozenset[str]() if record.undisturbed else record.robbed

    def excused(pair: tuple[LockHold, LockHold]) -> bool:
        return robbed is None or not robbed.isdisjoint(hold.attempt for hold in pair)

    for first, second in sorted(overlaps(record.holds), key=excused):
        together = (min(first.end, second.end) - second.start) / 1e6
        keys = first.attempt, second.attempt
        what = f"{first.attempt} and {second.attempt} held the lock together for {together:.1f} ms"
        yield Case(what, *keys, spoils=not excused((first, second)))


@rule("false_release", recorded=True)
def false_release(record: Record) -> Iterator[Case]:
    """A release gives back what its holder was granted, and does not find that it is still the
    holder's where somebody else has been granted it since. One server's word: where there are two,
    as in a split brain, each may be right."""
    if not record.evidence.fenced:
        return
    for hold in record.holds:
        if hold.released_token not in ("", hold.token):
            what = f"{hold.attempt} was granted {hold.token}, and released {hold.released_token}"
            yield Case(what, hold.attempt)
    for first, second in overlaps(record.holds) if record.robbed is not None else ():
        if first.release_outcome == "released" and first.is_released:
            what = (
                f"the release by {first.attempt} found its lock released by itself, and "
                f"{second.attempt} had been granted it before"
            )
            yield Case(what, first.attempt, second.attempt)


def overlaps(holds: Sequence[LockHold]) -> list[tuple[LockHold, LockHold]]:
    """Every two holds that overlap; `holds` in the order of their starts."""
    inside: list[LockHold] = []
    found: list[tuple[LockHold, LockHold]] = []
    for hold in holds:
        inside = [other for other in inside if other.end > hold.start]
        found += [(other, hold) for other in inside if not _same_owner(other, hold)]
        inside.append(hold)
    return found


@rule("unlocked", recorded=True)
def unlocked(record: Record) -> Iterator[Case]:
    """Under a lock each order was read and committed inside a hold of it."""
    if not record.evidence.locked:
        return
    sold = {r.attempt for r in record.requests if r.type == "ok" and not r.replayed}
    for number, commit in record.commit_of.items():
        if wrong := _outside_its_hold(commit, commit.attempt in sold):
            yield Case(f"order {number} was {wrong}", commit.attempt)


def _outside_its_hold(commit: Commit, sold: bool) -> str:
    """How a commit was not inside its hold, or empty. `sold`: its buyer was answered sold."""
    hold = commit.hold
    if hold is None:
        return "committed by a node without a hold"
    if commit.read_at is None or commit.read_at < hold.start:
        return "read before its node held the lock"
    if commit.done_at is not None and commit.done_at > hold.end:
        return "committed after its hold"
    if commit.done_at is None and hold.is_released and sold:
        return "not seen to be committed inside its hold"
    return ""


@rule("expired_hold", recorded=True)
def expired_hold(record: Record) -> Iterator[Case]:
    """Where nothing takes the lock from its holder, each release finds that it is still the
    holder's."""
    if not record.evidence.locked:
        return
    for hold in record.holds if record.undisturbed else ():
        if hold.release_outcome != "released":
            found = hold.release_outcome or "not recorded"
            yield Case(f"the release by {hold.attempt} found its lock {found}", hold.attempt)


@rule("wrong_fence", recorded=True)
def wrong_fence(record: Record) -> Iterator[Case]:
    """An order of a fenced strategy has the fence of the grant under which it was sold."""
    if not record.evidence.fenced:
        return
    for order in record.orders:
        commit, fence = record.commit_of.get(order["order"]), order.get("fence")
        granted = None if commit is None or commit.hold is None else commit.hold.fence
        if fence is None or fence != granted:
            yield of_order(order, f"has fence {fence}, granted was {granted}")


@rule("shared_token", recorded=True)
def shared_token(record: Record) -> Iterator[Case]:
    """Every grant has a token of its own; a holder that may enter its own lock again, one of its
    own thread."""
    if not record.evidence.locked:
        return
    first: dict[str, LockHold] = {}
    for hold in record.holds:
        earlier = first.setdefault(hold.token, hold)
        again = not record.evidence.own_token and _same_owner(earlier, hold)
        if not hold.token or not (earlier is hold or again):
            what = f"{earlier.attempt} and {hold.attempt} were granted the token {hold.token!r}"
            yield Case(what, earlier.attempt, hold.attempt)


def _same_owner(one: LockHold, other: LockHold) -> bool:
    """Whether it is one grant recorded twice, or a holder that entered its own lock again."""
    same_thread = one.handler[:3] == other.handler[:3]  # whichever attempt of a buyer it is
    return one.token != "" and one.token == other.token and same_thread
