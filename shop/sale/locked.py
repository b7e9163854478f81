"""What every lock strategy shares: the lock outside, the transaction inside."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.conf import settings
from django.db import connection, transaction

from locks import Lock, RedisLock
from locks.one_file import OneFileLock
from shop.ops.redis import locks_client
from shop.sale.points import Held, point, seen
from shop.sale.purchase import Attempt, Receipt, sell_one

#: A lock for a purchase.
LockFor: TypeAlias = Callable[[Attempt], Lock | OneFileLock]


def on_redis(
    kind: Callable[..., Lock | OneFileLock], *, ttl: str = "SHOP_LOCK_TTL", **more: str
) -> LockFor:
    """A LockFor that makes locks of this kind on the locks' Redis. `ttl` and each of `more` name a
    setting."""

    def lock_for(attempt: Attempt) -> Lock | OneFileLock:
        given = {"ttl": ttl, **more}
        options = {option: getattr(settings, name) for option, name in given.items()}
        return kind(locks_client(), attempt.lock_name, **options)

    return lock_for


def redis_lock(attempt: Attempt) -> RedisLock:
    """RedisLock for a purchase, on the locks' Redis, counted."""
    return RedisLock(locks_client(), attempt.lock_name, **options_of(attempt))


def options_of(attempt: Attempt) -> dict[str, Any]:
    """The options of RedisLock, and of AsyncRedisLock.

    A holder that hangs, in a database that was cut off for instance, lives and would be renewed for
    as long as it hangs: `max_hold` ends that. What it writes later is refused by its fence.
    """
    given = {"ttl": settings.SHOP_LOCK_TTL, "max_hold": settings.SHOP_LOCK_MAX_HOLD}
    if not settings.METRICS_TOKEN:
        return given  # without hooks, so that no lock is slower
    from shop.ops.metrics import lock_metrics  # prometheus-client is not loaded before

    return {**given, "metrics": lock_metrics(attempt.lock)}


class LockInsideTransaction(RuntimeError):
    """A lock was asked for inside a transaction. The message says why not, and what to do."""

    def __init__(self) -> None:
        super().__init__(
            "A lock taken inside a transaction is released before the commit, and the next buyer "
            "reads the old stock. Take the lock outside and open the transaction inside it: no "
            "ATOMIC_REQUESTS, no atomic() around a purchase. To see it oversell, ask for "
            "lock=redis-in-transaction."
        )


def held(
    lock: Lock | OneFileLock, *, even_inside_a_transaction: bool = False
) -> AbstractContextManager[Held]:
    """Hold the lock for a block; wait up to SHOP_LOCK_WAIT for it. Raises LockInsideTransaction
    before that. The transaction that a TestCase wraps around its test is not counted, nor is it by
    `durable`."""
    blocks = [] if even_inside_a_transaction else connection.atomic_blocks
    if any(not getattr(block, "_from_testcase", False) for block in blocks):
        raise LockInsideTransaction
    return seen(lock.hold(wait=settings.SHOP_LOCK_WAIT))


def sell_plainly(attempt: Attempt, lease: Held) -> Receipt:
    """Rely only on the lock: the database gets no fence."""
    return sell_one(attempt)


@dataclass(frozen=True, slots=True)
class sell_under:
    """A `buy` that sells under the lock.

    The lock encloses the commit: released before it, the next buyer would read the old stock.
    No query runs before the lock is held: it would pin a pooled connection for as long as the
    buyer waits.
    """

    lock_for: LockFor
    sell: Callable[[Attempt, Any], Receipt] = sell_plainly

    def __call__(self, attempt: Attempt) -> Receipt:
        with held(self.lock_for(attempt)) as lease:
            receipt = self.section(attempt, lease)
        return receipt.under(lease)

    def section(self, attempt: Attempt, lease: Held) -> Receipt:
        """What runs under the lock, in one thread: the transaction, up to its commit."""
        with transaction.atomic(durable=True):
            receipt = self.sell(attempt, lease)
        point("after_commit")
        return receipt
