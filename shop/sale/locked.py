"""Holding a lock around a purchase: first the lock is taken, then the transaction begins.

The lock is released after the commit; otherwise the next buyer would read the old stock. No query
runs before the lock is held; otherwise a waiting buyer would occupy a connection of the pool.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.conf import settings
from django.db import connection

from locks import Lock, RedisLock
from locks.one_file import OneFileLock
from shop.ops.redis import locks_client
from shop.sale.points import point_reached
from shop.sale.purchase import AnyLease, Attempt


def make_redis_lock(attempt: Attempt) -> RedisLock:
    """Return a RedisLock for a purchase, on the locks' Redis, with metrics."""
    return RedisLock(locks_client(), attempt.lock_name, **make_redis_lock_options(attempt))


def make_redis_lock_options(attempt: Attempt) -> dict[str, Any]:
    """Return the options for RedisLock and AsyncRedisLock.

    Without `max_hold`, the lease of a holder that hangs would be renewed forever. After `max_hold`
    the fence rejects the late writes of that holder.
    """
    options = {"ttl": settings.SHOP_LOCK_TTL, "max_hold": settings.SHOP_LOCK_MAX_HOLD}
    if not settings.METRICS_TOKEN:
        return options  # no metrics, no overhead
    # Load prometheus-client only if metrics are on.
    from shop.ops.metrics import get_lock_metrics

    return {**options, "metrics": get_lock_metrics(attempt.lock)}


class LockInsideTransaction(RuntimeError):
    """A lock would have been taken inside a transaction. The message says how to avoid that."""

    def __init__(self) -> None:
        super().__init__(
            "A lock taken inside a transaction is released before the commit, and the next buyer "
            "reads the old stock. Take the lock outside and open the transaction inside it: no "
            "ATOMIC_REQUESTS, no atomic() around a purchase. To see it oversell, buy with "
            "lock=redis-in-transaction."
        )


def hold_lock(
    lock: Lock | OneFileLock,
    *,
    inside_transaction: bool = False,
    encloses_commit: bool = True,
) -> AbstractContextManager[AnyLease]:
    """Return a context manager that holds the lock for the duration of a block.

    The context manager waits up to SHOP_LOCK_WAIT seconds for the lock. A demo or a test can stop
    the thread before and after the lock is taken, and before and after it is released
    (shop/sale/points.py).

    inside_transaction  whether the transaction may begin before the lock is taken
    encloses_commit     whether the transaction is committed inside the block

    Raises LockInsideTransaction if this thread is in a transaction and `inside_transaction` is
    False.
    """
    if not inside_transaction:
        refuse_inside_transaction()
    # hold() does not take the lock yet: the `with` in hold_and_send_points() takes it.
    hold_context = lock.hold(wait=settings.SHOP_LOCK_WAIT)
    return hold_and_send_points(hold_context, encloses_commit=encloses_commit)


def refuse_inside_transaction() -> None:
    """Raise LockInsideTransaction if this thread is in a transaction.

    The transaction of a TestCase does not count, as for Django's atomic(durable=True).
    """
    if any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
        raise LockInsideTransaction


@contextmanager
def hold_and_send_points(
    hold_context: AbstractContextManager[AnyLease], *, encloses_commit: bool = True
) -> Iterator[AnyLease]:
    """Hold a lock for a block, and send `point_reached` before and after each step.

    The steps are to acquire the lock, to run the block, and to release the lock. `point_reached` is
    a signal at a named place in a purchase, at which a demo or a test can stop the thread
    (shop/sale/points.py).

    hold_context     the result of `lock.hold()`: entering it takes the lock, leaving it releases it
    encloses_commit  whether the transaction is committed inside the block
    """
    point_reached.send("acquire")
    lease = None
    try:
        with hold_context as lease, send_lease_points(lease, encloses_commit=encloses_commit):
            yield lease
    finally:
        if lease is not None:  # the lock was acquired, so it is released, even after an error
            point_reached.send("released", **describe_release(lease))


@contextmanager
def send_lease_points(lease: AnyLease, *, encloses_commit: bool = True) -> Iterator[None]:
    """Send the signal `point_reached` at the beginning and at the end of a block under a lock.

    A point is a named place in a purchase (shop/sale/points.py). The points are `acquired` at the
    beginning, and `after_commit` and `release` at the end. If the block raises an error,
    `after_commit` is left out.

    encloses_commit  whether the transaction is committed inside the block
    """
    point_reached.send("acquired", **describe_acquisition(lease))
    try:
        yield
        if encloses_commit:
            point_reached.send("after_commit")
    finally:
        point_reached.send("release", token=lease.token)


def describe_acquisition(lease: AnyLease) -> dict[str, object]:
    """Return the fields of a lease that a purchase reports when it has acquired the lock."""
    return {
        "lock_name": lease.name,
        "token": lease.token,
        "fence": lease.fence,
        "waited_ms": round(lease.waited_seconds * 1000, 3),
    }


def describe_release(lease: AnyLease) -> dict[str, object]:
    """Return the fields of a lease that a purchase reports when it has released the lock."""
    return {
        "token": lease.token,
        "outcome": lease.outcome,
        "held_ms": round(lease.held_seconds * 1000, 3),
    }
