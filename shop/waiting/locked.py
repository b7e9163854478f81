"""The lock outside, without a thread; the transaction inside, in a thread of its lane."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from django.conf import settings

from locks import AsyncLease, AsyncRedisLock, LockBackendError
from shop.ops.current import note
from shop.ops.hooks import hooks_of
from shop.ops.redis import async_locks_client
from shop.sale.checkout import named_errors
from shop.sale.locked import redis_lock, sell_under
from shop.sale.points import apoint, entered, leaving, of_released
from shop.sale.purchase import Attempt, Receipt
from shop.sale.strategy import Strategy
from shop.waiting.lanes import Lane


def under_redis_lock(strategy: Strategy) -> sell_under | None:
    """How the strategy sells under RedisLock, whose other form is AsyncRedisLock. None for any
    other strategy: it has no form that waits without a thread."""
    buy = strategy.buy
    return buy if isinstance(buy, sell_under) and buy.lock_for is redis_lock else None


def async_redis_lock(attempt: Attempt) -> AsyncRedisLock:
    """`redis_lock` for an event loop. Both take the same lock."""
    return AsyncRedisLock(
        async_locks_client(),
        attempt.lock_name,
        ttl=settings.SHOP_LOCK_TTL,
        max_hold=settings.SHOP_LOCK_MAX_HOLD,
        metrics=hooks_of(attempt.lock),
    )


async def buy(attempt: Attempt, selling: sell_under, holders: Lane) -> Receipt:
    """Wait for the lock, sell in a thread of `holders`, release. Raises what `selling` raises, an
    error of PostgreSQL as one of the shop.

    Cancelled while it waits, it leaves the queue. Cancelled later, the sale is finished first.
    """

    def section(lease: AsyncLease) -> Receipt:
        entered(lease)
        try:
            with named_errors(attempt):  # here, for it closes this thread's connection
                return selling.section(attempt, lease)
        finally:
            leaving(lease)

    return await _held(async_redis_lock(attempt), section, holders)


async def _held(
    lock: AsyncRedisLock, section: Callable[[AsyncLease], Receipt], holders: Lane
) -> Receipt:
    await apoint("acquire")
    note(asked=time.monotonic(), waited=None)
    lease = None
    try:
        async with lock.hold(wait=settings.SHOP_LOCK_WAIT) as lease:
            receipt = await holders.run(section, lease)
    finally:
        if lease is not None:  # released also after a purchase that sold nothing
            await apoint("released", **of_released(lease))
    return receipt.under(lease)


async def connect() -> None:
    """Open the connection on which all locks of this event loop ask, if their Redis answers."""
    with suppress(LockBackendError):
        await async_redis_lock(Attempt("apple", buyer="", lock="redis")).locked()


async def round_trip() -> None:
    """Return when the locks' Redis has answered once more. Raises redis.RedisError."""
    await async_locks_client().ping()
