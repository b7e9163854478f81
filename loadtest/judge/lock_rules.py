"""The rules on locks: fences rise, holds do not overlap, each order is sold inside a hold.

A grant is the success of one acquisition of the lock. A hold is the time from a grant to the
release.

If holds overlap, or if a grant has a lower fence than an earlier one, the lock has failed. If a
fault took the lock from its holder, the sale may still be exact, because the storage refuses the
write of a holder whose fence is too low. Without such a fault, the sale is not exact.

A violation of any other rule always prevents an exact verdict: the storage accepted a write that it
had to refuse, or the lock was not used. Then the totals are correct only by luck.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from operator import itemgetter

from loadtest.judge.finding import Case, make_order_case
from loadtest.judge.intervals import Commit, LockHold
from loadtest.judge.rule import rule
from loadtest.judge.sale_record import SaleRecord


@rule("fence_fell")
def fence_fell_between_orders(record: SaleRecord) -> Iterator[Case]:
    """Rule: the fence of each order is higher than the fence of the order before it."""
    fenced_orders = [
        order for order in record.orders_sorted_by_number if order.get("fence") is not None
    ]
    for earlier, later in pairwise(fenced_orders):
        if later["fence"] <= earlier["fence"]:
            yield Case(
                f"order {later['order']} was accepted with fence {later['fence']} after order "
                f"{earlier['order']} with fence {earlier['fence']}",
                earlier["key"],
                later["key"],
            )


@rule("fence_fell")
def fence_fell_between_grants(record: SaleRecord) -> Iterator[Case]:
    """Rule: each grant of the lock has a higher fence than the earlier grants.

    A grant is earlier than another one if it was recorded before the other one was requested. If
    two buyers requested the lock at the same time, either grant may be the first. Then the rule
    only requires that their fences differ. Grants to the same owner may have the same fence.

    If a fault may have taken the lock from its holder, a sale that breaks the rule may be exact.
    """
    grants = [(hold.fence, hold) for hold in record.holds if hold.fence is not None]
    starts = [hold.start for _, hold in grants]  # sorted, as record.holds are
    # highest_grants[index] is the grant with the highest fence among the first index + 1 grants.
    highest_grants = list(accumulate(grants, partial(max, key=itemgetter(0))))
    last_hold_by_fence: dict[int, LockHold] = {}
    for fence, hold in grants:
        conflicting_hold = last_hold_by_fence.get(fence)
        earlier_grant_count = bisect_left(starts, hold.requested_at)
        if earlier_grant_count:
            highest_fence, highest_hold = highest_grants[earlier_grant_count - 1]
            if highest_fence >= fence:
                conflicting_hold = highest_hold
        if conflicting_hold is not None and not _is_same_owner(conflicting_hold, hold):
            yield Case(
                f"{hold.attempt} was granted fence {fence} after {conflicting_hold.attempt} had "
                f"been granted {conflicting_hold.fence}",
                conflicting_hold.attempt,
                hold.attempt,
                prevents_exact=record.undisturbed,
            )
        last_hold_by_fence[fence] = hold


@rule("overlap")
def overlap(record: SaleRecord) -> Iterator[Case]:
    """Rule: no two buyers hold the lock at the same time.

    If a fault may have taken the lock from one of the two buyers, the sale may still be exact.
    """
    # All cases become one finding, which takes `prevents_exact` from its first case. So the cases
    # that prevent an exact verdict come first.
    overlaps = [
        (_may_fault_have_taken_lock(record, first, second), first, second)
        for first, second in find_overlaps(record.holds)
    ]
    for is_allowed, first, second in sorted(overlaps, key=itemgetter(0)):
        overlap_ms = (min(first.end, second.end) - second.start) / 1e6
        yield Case(
            f"{first.attempt} and {second.attempt} held the lock together for {overlap_ms:.1f} ms",
            first.attempt,
            second.attempt,
            prevents_exact=not is_allowed,
        )


def _may_fault_have_taken_lock(record: SaleRecord, first: LockHold, second: LockHold) -> bool:
    """Return whether a fault may have taken the lock from one of these holders."""
    if record.undisturbed:
        return False
    if record.buyers_hit_by_fault is None:  # the fault may have hit any buyer
        return True
    return (
        first.attempt in record.buyers_hit_by_fault or second.attempt in record.buyers_hit_by_fault
    )


@rule("false_release", needs_node_records=True)
def false_release(record: SaleRecord) -> Iterator[Case]:
    """Rule: a release deletes only the lock that its buyer was granted.

    A release must send the token of its grant. If another buyer was granted the lock meanwhile, the
    release must fail. This second condition is not checked if `buyers_hit_by_fault` is None: then
    two lock servers may have granted the lock independently, as in a split brain.

    The rule applies only to locks with a fence.
    """
    if not record.mechanism.fenced:
        return
    for hold in record.holds:
        if hold.released_token not in ("", hold.token):
            yield Case(
                f"{hold.attempt} was granted {hold.token}, and released {hold.released_token}",
                hold.attempt,
            )
    if record.buyers_hit_by_fault is None:
        return
    for first, second in find_overlaps(record.holds):
        # A hold ends when its release begins. The holds overlap, so the first release began after
        # the second grant.
        if first.release_outcome == "released":
            yield Case(
                f"the release by {first.attempt} succeeded, after {second.attempt} had been "
                "granted the lock",
                first.attempt,
                second.attempt,
            )


def find_overlaps(holds: Sequence[LockHold]) -> list[tuple[LockHold, LockHold]]:
    """Return all pairs of overlapping holds, except pairs of the same owner.

    A hold is the time from the grant of a lock to its release.

    holds  sorted by their starts
    """
    current_holds: list[LockHold] = []
    overlaps: list[tuple[LockHold, LockHold]] = []
    for hold in holds:
        current_holds = [current for current in current_holds if current.end > hold.start]
        overlaps += [
            (current, hold) for current in current_holds if not _is_same_owner(current, hold)
        ]
        current_holds.append(hold)
    return overlaps


@rule("unlocked", needs_node_records=True)
def unlocked(record: SaleRecord) -> Iterator[Case]:
    """Rule: if the strategy has a lock, its holder reads the stock and commits during the hold."""
    if not record.mechanism.locked:
        return
    # A replayed answer does not count: it answers a later request of the buyer. The node that
    # committed the order may have been killed before it answered and recorded the commit.
    buyers_answered_sold = {
        request.attempt
        for request in record.requests
        if request.type == "ok" and not request.replayed
    }
    for number, commit in record.commits_by_order.items():
        was_answered = commit.attempt in buyers_answered_sold
        if problem := _describe_problem_with_hold(commit, was_answered=was_answered):
            yield Case(f"order {number} was {problem}", commit.attempt)


def _describe_problem_with_hold(commit: Commit, *, was_answered: bool) -> str:
    """Return which part of a purchase was not inside a hold of the lock; empty if all was inside.

    A hold is the time from the grant of a lock to its release.
    The text follows "order 7 was" in a message.

    If the end of the commit was not recorded, the node may have been killed. But a node that
    released the lock and answered the buyer was still running, so it must have recorded the end.

    was_answered  whether the buyer was answered `sold`
    """
    hold = commit.hold
    if hold is None:
        return "committed by a node without a hold"
    if commit.read_at is None or commit.read_at < hold.start:
        return "read before its node held the lock"
    if commit.done_at is not None and commit.done_at > hold.end:
        return "committed after its hold"
    if commit.done_at is None and hold.is_released and was_answered:
        return "not recorded as committed inside its hold"
    return ""


@rule("expired_hold", needs_node_records=True)
def expired_hold(record: SaleRecord) -> Iterator[Case]:
    """Rule: each hold (the time from the grant of a lock) ends with a successful release.

    The rule does not apply if a fault may have taken the lock from its holder.
    """
    if not record.mechanism.locked or not record.undisturbed:
        return
    for hold in record.holds:
        if hold.release_outcome != "released":
            outcome = hold.release_outcome or "not recorded"
            yield Case(f"the outcome of the release by {hold.attempt} is {outcome}", hold.attempt)


@rule("wrong_fence", needs_node_records=True)
def wrong_fence(record: SaleRecord) -> Iterator[Case]:
    """Rule: an order of a fenced strategy has the fence of the grant under which it was sold."""
    if not record.mechanism.fenced:
        return
    for order in record.orders:
        fence = order.get("fence")
        commit = record.commits_by_order.get(order["order"])
        granted_fence = None if commit is None or commit.hold is None else commit.hold.fence
        if fence is None or fence != granted_fence:
            yield make_order_case(
                order, f"has fence {fence}, and its grant had fence {granted_fence}"
            )


@rule("shared_token", needs_node_records=True)
def shared_token(record: SaleRecord) -> Iterator[Case]:
    """Rule: each grant has a new token, unless a thread reacquires a reentrant lock that it has.

    A grant is the success of one acquisition of the lock.
    """
    if not record.mechanism.locked:
        return
    first_holds: dict[str, LockHold] = {}
    for hold in record.holds:
        first = first_holds.setdefault(hold.token, hold)
        is_reentry = not record.mechanism.has_unique_tokens and _is_same_owner(first, hold)
        is_repeated = first is not hold and not is_reentry
        if not hold.token or is_repeated:
            yield Case(
                f"{first.attempt} and {hold.attempt} were granted the token {hold.token!r}",
                first.attempt,
                hold.attempt,
            )


def _is_same_owner(first: LockHold, second: LockHold) -> bool:
    """Return whether two holds have the same token and the same thread.

    Their attempts may differ: a thread that has a reentrant lock may acquire it again for another
    buyer's attempt.
    """
    has_same_thread = first.attempt_thread.thread_of_node == second.attempt_thread.thread_of_node
    return first.token != "" and first.token == second.token and has_same_thread
