"""One purchase in an event loop: as in checkout.py, but a waiting buyer occupies no thread.

Under a strategy with `sell_in_loop` a buyer waits for the lock as a task (AsyncRedisLock). Only the
critical section under the lock, and queries before or after it, run in a thread. Under any other
strategy the whole purchase runs in a thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TypeAlias, TypeVar

from django.conf import settings
from django.db import connection

from locks import AsyncLease, AsyncRedisLock
from shop.ops.redis import async_locks_client
from shop.sale import checkout, known_products, waiting_room
from shop.sale.locked import describe_release, make_redis_lock_options, send_lease_points
from shop.sale.points import reach_point_async
from shop.sale.purchase import AnyLease, Attempt, Receipt
from shop.sale.strategy import STRATEGIES

T = TypeVar("T")
SellUnderLease: TypeAlias = Callable[[Attempt, AnyLease], Receipt]

#: Threads for queries if there is no connection pool (SHOP_DB_POOL=0).
DEFAULT_QUERY_THREADS = 20


class ThreadPools:
    """Two pools of threads for blocking calls.

    A single pool could deadlock: all its threads might wait for a lock whose holder needs a thread.

    short_calls      for single queries, and for the critical section of a buyer that already holds
                     its lock. No call in this pool waits for a strategy's lock, so a holder gets a
                     thread soon
    whole_purchases  for purchases that run entirely in a thread, and may wait for a lock there. A
                     buyer that acquired its lock in a thread of this pool needs no second thread
    """

    def __init__(self, max_whole_purchases: int) -> None:
        """Create the pools. At most `max_whole_purchases` purchases run in threads at a time."""
        self.short_calls = ThreadPoolExecutor(
            settings.SHOP_DB_POOL or DEFAULT_QUERY_THREADS, "short-call"
        )
        self.whole_purchases = ThreadPoolExecutor(max_whole_purchases, "whole-purchase")


async def run_in_pool(pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    """Make a call in a thread of the pool, and return its result.

    If this task is cancelled before the call has begun, the call is not made. If it is cancelled
    later, CancelledError is raised after the call has ended.
    """
    job = pool.submit(copy_context().run, _call_and_release_connection, call)
    return await wait_despite_cancellation(asyncio.wrap_future(job), try_cancel=job.cancel)


async def wait_despite_cancellation(
    future: asyncio.Future[T], *, try_cancel: Callable[[], bool] | None = None
) -> T:
    """Return the result of the future, even if this task is cancelled while it waits.

    After a cancellation, wait until the future is done, and then raise CancelledError.

    try_cancel  called after a cancellation. If it returns True, the work of the future has not
                begun and never will, and CancelledError is raised at once
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        was_cancelled = try_cancel is not None and try_cancel()
        while not (was_cancelled or future.done()):
            with suppress(asyncio.CancelledError):  # a second cancellation does not end the wait
                await asyncio.wait({future})
        raise


def _call_and_release_connection(call: Callable[[], T]) -> T:
    """Make the call and return its result. Return its database connection to the pool."""
    try:
        return call()
    finally:
        connection.close()


async def check_out(attempt: Attempt, threads: ThreadPools) -> Receipt:
    """Sell one unit to one buyer from an event loop. Raises the errors of checkout.check_out().

    If this task is cancelled during a call in a thread, CancelledError is raised after that call.
    """
    sell_under_lease = STRATEGIES[attempt.lock].sell_in_loop
    if sell_under_lease is None:
        return await run_in_pool(threads.whole_purchases, partial(checkout.check_out, attempt))
    with checkout.translate_errors(attempt), waiting_room.occupy_seat(attempt.product):
        if not known_products.is_cached(attempt.product):
            await _call_in_thread(
                threads, attempt, partial(known_products.require_existing_product, attempt.product)
            )
        await reach_point_async(
            "begins", lock=attempt.lock, product=attempt.product, sale=attempt.sale
        )
        try:
            return await _sell_under_lock(attempt, sell_under_lease, threads)
        except checkout.REPLAYABLE_REFUSALS as refusal:
            if attempt.key is None:  # no earlier order can be found without a key
                raise
            return await _call_in_thread(
                threads, attempt, partial(checkout.find_earlier_order, attempt, refusal)
            )


async def _sell_under_lock(
    attempt: Attempt, sell_under_lease: SellUnderLease, threads: ThreadPools
) -> Receipt:
    """Wait for the lock as a task, then sell in a thread while the lock is held."""

    def sell_in_thread(lease: AsyncLease) -> Receipt:
        with send_lease_points(lease):
            return sell_under_lease(attempt, lease)

    lock = AsyncRedisLock(
        async_locks_client(), attempt.lock_name, **make_redis_lock_options(attempt)
    )
    await reach_point_async("acquire")
    lease = None
    try:
        async with lock.hold(wait=settings.SHOP_LOCK_WAIT) as lease:
            receipt = await _call_in_thread(threads, attempt, partial(sell_in_thread, lease))
    finally:
        if lease is not None:  # the lock was acquired, so it is released, even after an error
            await reach_point_async("released", **describe_release(lease))
    return receipt.with_lease(lease)


async def _call_in_thread(threads: ThreadPools, attempt: Attempt, call: Callable[[], T]) -> T:
    """Make the call in a thread of `threads.short_calls`, and translate its errors in that thread.

    A broken connection belongs to that thread, so only that thread can discard it.
    """
    # A context manager can decorate a function; it then surrounds each call of the function.
    translated_call = checkout.translate_errors(attempt)(call)
    return await run_in_pool(threads.short_calls, translated_call)
