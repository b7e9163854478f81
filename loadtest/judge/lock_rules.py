"""The rules over locks: fences rise, holds do not overlap, everybody buys inside a hold.

`overlap`, and a fence that fell between grants, mean that the lock failed. Where something took the
lock from its holder the storage may have repaired that: with its fence RedisLock sells exactly
while a stale holder still believes that it holds the lock. Where nothing did, they spoil the sale.
All other findings spoil it in any case: the storage accepted what it had to refuse, or the lock was
not used, and totals that are right are right by luck.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from loadtest.judge.intervals import Commit, Hold
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
            cases = (earlier.attempt, grant.attempt)
            return Finding("fence_fell", what, cases, spoils=record.asked.undisturbed)
        seen[grant.fence] = grant
        top = highest[-1] if highest else grant
        highest.append(grant if (top.fence or 0) < grant.fence else top)
    return None


def overlap(record: Record) -> Finding | None:
    """No two holders are inside at the same time, but for one whose lock was taken away."""
    found = overlaps(record.holds)
    if not found:
        return None
    robbed = frozenset[str]() if record.asked.undisturbed else record.asked.robbed
    at_fault = [
        pair
        for pair in found
        if robbed is not None and not robbed & {hold.attempt for hold in pair}
    ]
    first, second = (at_fault or found)[0]
    together = (min(first.end, second.end) - second.start) / 1e6
    what = f"{first.attempt} and {second.attempt} held the lock together for {together:.1f} ms"
    cases = (first.attempt, second.attempt)
    return Finding("overlap", what + more(found), cases, spoils=bool(at_fault))


def false_release(record: Record) -> Finding | None:
    """A release gives back what its holder was granted, and does not find that it is still the
    holder's where somebody else has been granted it since. One server's word: where there are two,
    as in a split brain, each may be right."""
    if not (record.asked.recorded and record.evidence.fenced):
        return None
    for hold in record.holds:
        if hold.given_back not in ("", hold.token):
            what = f"{hold.attempt} was granted {hold.token}, and released {hold.given_back}"
            return Finding("false_release", what, (hold.attempt,))
    if record.asked.robbed is None:
        return None
    for first, second in overlaps(record.holds):
        if first.outcome == "released" and first.released:
            what = (
                f"the release by {first.attempt} found its lock released by itself, and "
                f"{second.attempt} had been granted it before"
            )
            return Finding("false_release", what, (first.attempt, second.attempt))
    return None


def overlaps(holds: Sequence[Hold]) -> list[tuple[Hold, Hold]]:
    """Every two holds that overlap; `holds` in the order of their starts."""
    inside: list[Hold] = []
    found: list[tuple[Hold, Hold]] = []
    for hold in holds:
        inside = [other for other in inside if other.end > hold.start]
        found += [(other, hold) for other in inside if not _same_owner(other, hold)]
        inside.append(hold)
    return found


def unlocked(record: Record) -> Finding | None:
    """Under a lock each order was read and committed inside a hold of it."""
    if not (record.asked.recorded and record.evidence.locked):
        return None
    sold = {r.attempt for r in record.requests if r.type == "ok" and not r.replayed}
    found = [
        (commit.attempt, f"order {number} was {wrong}")
        for number, commit in record.commit_of.items()
        if (wrong := _outside_its_hold(commit, commit.attempt in sold))
    ]
    if not found:
        return None
    return Finding("unlocked", found[0][1] + more(found), tuple(key for key, _ in found))


def _outside_its_hold(commit: Commit, sold: bool) -> str:
    """How a commit was not inside its hold, or empty. `sold`: its buyer was answered sold."""
    hold = commit.hold
    if hold is None:
        return "committed by a node without a hold"
    if commit.read_at is None or commit.read_at < hold.start:
        return "read before its node held the lock"
    if commit.done is not None and commit.done > hold.end:
        return "committed after its hold"
    if commit.done is None and hold.released and sold:
        return "not seen to be committed inside its hold"
    return ""


def expired_hold(record: Record) -> Finding | None:
    """Where nothing takes the lock from its holder, each release finds that it is still the
    holder's. Under a fault that is so of a lock that is renewed and fenced, for all but the robbed.
    """
    asked, evidence = record.asked, record.evidence
    if asked.recorded and asked.undisturbed and evidence.locked:
        found = [hold for hold in record.holds if hold.outcome != "released"]
    elif asked.recorded and asked.robbed is not None and evidence.fenced:
        found = [
            hold
            for hold in record.holds
            if hold.outcome == "expired" and hold.attempt not in asked.robbed
        ]
    else:
        return None
    if not found:
        return None
    what = f"the release by {found[0].attempt} found its lock {found[0].outcome or 'not recorded'}"
    return Finding("expired_hold", what + more(found), tuple(hold.attempt for hold in found))


def wrong_fence(record: Record) -> Finding | None:
    """An order of a fenced strategy has the fence of the grant under which it was sold."""
    if not (record.asked.recorded and record.evidence.fenced):
        return None
    found = []
    for order in record.orders:
        commit = record.commit_of.get(order["order"])
        granted = None if commit is None or commit.hold is None else commit.hold.fence
        if order.get("fence") is None or order["fence"] != granted:
            what = f"order {order['order']} has fence {order.get('fence')}, granted was {granted}"
            found.append((str(order["key"]), what))
    if not found:
        return None
    return Finding("wrong_fence", found[0][1] + more(found), tuple(key for key, _ in found))


def shared_token(record: Record) -> Finding | None:
    """Every grant has a token of its own; a holder that may enter its own lock again, one of its
    thread alone."""
    if not (record.asked.recorded and record.evidence.locked):
        return None
    first: dict[str, Hold] = {}
    for hold in record.holds:
        earlier = first.setdefault(hold.token, hold)
        ours = earlier is hold or (not record.evidence.own_token and _same_thread(earlier, hold))
        if not hold.token or not ours:
            what = f"{earlier.attempt} and {hold.attempt} were granted the token {hold.token!r}"
            return Finding("shared_token", what, (earlier.attempt, hold.attempt))
    return None


def _same_owner(one: Hold, other: Hold) -> bool:
    """Whether it is one grant recorded twice, or a holder that entered its own lock again."""
    return one.token != "" and one.token == other.token and _same_thread(one, other)


def _same_thread(one: Hold, other: Hold) -> bool:
    return (one.node, one.pid, one.thread) == (other.node, other.pid, other.thread)
