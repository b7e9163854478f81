"""What every lock strategy shares: the lock outside, the transaction inside."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings
from django.db import connection, transaction

from locks import AsyncLease, Lease, Lock, RedisLock
from shop.ops.current import note
from shop.ops.hooks import hooks_of
from shop.ops.redis import locks_client
from shop.sale.points import point
from shop.sale.purchase import Attempt, Receipt, sell_one


def on_redis(
    kind: Callable[..., Lock], *, ttl: str = "SHOP_LOCK_TTL", **options: Any
) -> Callable[[Attempt], Lock]:
    """A factory of such locks for a purchase, on the locks' Redis; `ttl` names a setting."""

    def lock_for(attempt: Attempt) -> Lock:
        return kind(locks_client(), attempt.lock_name, ttl=getattr(settings, ttl), **options)

    return lock_for


def redis_lock(attempt: Attempt) -> RedisLock:
    """RedisLock for a purchase, on the locks' Redis, counted.

    A holder that hangs, in a database that was cut off for instance, lives and would be renewed for
    as long as it hangs: `max_hold` ends that. What it writes later is refused by its fence.
    """
    return RedisLock(
        locks_client(),
        attempt.lock_name,
        ttl=settings.SHOP_LOCK_TTL,
        max_hold=settings.SHOP_LOCK_MAX_HOLD,
        metrics=hooks_of(attempt.lock),
    )


class LockInsideTransaction(RuntimeError):
    """A lock was asked for inside a transaction. The message says why not, and what to do."""

    def __init__(self) -> None:
        super().__init__(
            "A lock taken inside a transaction is released before the commit, and the next buyer "
            "reads the old stock. Take the lock outside and open the transaction inside it: no "
            "ATOMIC_REQUESTS, no atomic() around a purchase. To see it oversell, ask for "
            "lock=redis-in-transaction."
        )


@contextmanager
def held(lock: Lock, *, even_inside_a_transaction: bool = False) -> Iterator[Lease]:
    """Hold the lock; wait up to SHOP_LOCK_WAIT for it. Raises LockInsideTransaction before that.

    The transaction that a TestCase wraps around its test is not counted, nor is it by `durable`.
    """
    blocks = [b for b in connection.atomic_blocks if not getattr(b, "_from_testcase", False)]
    if blocks and not even_inside_a_transaction:
        raise LockInsideTransaction
    point("acquire")
    note(asked=time.monotonic(), waited=None)
    lease = None
    try:
        with lock.hold(wait=settings.SHOP_LOCK_WAIT) as lease:
            entered(lease)
            try:
                yield lease
            finally:
                leaving(lease)
    finally:
        if lease is not None:  # released also after a purchase that sold nothing
            point("released", **of_released(lease))


def entered(lease: Lease | AsyncLease) -> None:
    """Record, in the thread that sells, that the lock is held, and how long it was waited for."""
    point(
        "acquired",
        lock_name=lease.name,
        token=lease.token,
        fence=lease.fence,
        waited_ms=round(lease.waited_seconds * 1000, 3),
    )
    note(waited=lease.waited_seconds)


def leaving(lease: Lease | AsyncLease) -> None:
    """Record, in the thread that sold, that the lock is released next, and how long it was held."""
    point("release", token=lease.token)
    note(held=lease.held_seconds)


def of_released(lease: Lease | AsyncLease) -> dict[str, object]:
    """The facts of the point `released`."""
    return {
        "token": lease.token,
        "outcome": lease.outcome,
        "held_ms": round(lease.held_seconds * 1000, 3),
    }


def sell_plainly(attempt: Attempt, lease: Lease) -> Receipt:
    """Rely on the lock alone: the database gets no fence."""
    return sell_one(attempt)


@dataclass(frozen=True, slots=True)
class sell_under:
    """A `buy` that sells under the lock.

    The lock encloses the commit: released before it, the next buyer would read the old stock.
    No query runs before the lock is held: it would pin a pooled connection for as long as the
    buyer waits.
    """

    lock_for: Callable[[Attempt], Lock]
    sell: Callable[[Attempt, Lease], Receipt] = sell_plainly

    def __call__(self, attempt: Attempt) -> Receipt:
        with held(self.lock_for(attempt)) as lease:
            receipt = self.section(attempt, lease)
        return receipt.under(lease)

    def section(self, attempt: Attempt, lease: Lease | AsyncLease) -> Receipt:
        """What runs under the lock, in one thread: the transaction, up to its commit."""
        with transaction.atomic(durable=True):
            # It reads of its lease what both kinds have: fence, name, times.
            receipt = self.sell(attempt, cast(Lease, lease))
        point("after_commit")
        return receipt
