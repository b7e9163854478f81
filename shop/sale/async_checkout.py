"""One purchase in an event loop: shop/sale/checkout.py, where a buyer who waits has no thread.

Under RedisLock a buyer waits as a task (AsyncRedisLock); only the section under the lock, and what
asks the database before or after it, runs in a thread. Every other strategy runs whole in a thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from django.conf import settings
from django.db import connection

from locks import AsyncLease, AsyncRedisLock
from shop.ops.redis import async_locks_client
from shop.sale import checkout, on_sale, waiting_room
from shop.sale.locked import options_of, redis_lock, sell_under
from shop.sale.points import apoint, inside, of_released
from shop.sale.purchase import Attempt, Receipt
from shop.sale.strategy import STRATEGIES

T = TypeVar("T")

#: Threads that use the database where each has a connection of its own (SHOP_DB_POOL=0).
WITHOUT_POOL = 20


class Threads:
    """Threads for what blocks, bounded in number and started when needed.

    short  for those that hold their lock, and for single queries. They wait for the database only,
           never for a thread that somebody else occupies while waiting for a lock
    whole  for purchases that run whole in a thread: at most WEB_THREADS at a time. One that holds
           its lock is in its thread already, so none waits for a thread that waits for it
    """

    def __init__(self, whole: int) -> None:
        self.short = ThreadPoolExecutor(settings.SHOP_DB_POOL or WITHOUT_POOL, "short")
        self.whole = ThreadPoolExecutor(whole, "whole")


async def in_thread(pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    """The result of the call, made in a thread of the pool. Cancelled before it has begun, it is
    never made; cancelled later, it is waited for, and then CancelledError is raised."""
    job = pool.submit(copy_context().run, _then_close, call)
    return await to_its_end(asyncio.wrap_future(job), give_up=job.cancel)


async def to_its_end(
    future: asyncio.Future[T], *, give_up: Callable[[], bool] = lambda: False
) -> T:
    """The result of the future. Cancelled meanwhile, however often, this task waits for it all the
    same, unless `give_up` could end it, and then raises CancelledError."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        ended = give_up()
        while not (ended or future.done()):
            with suppress(asyncio.CancelledError):
                await asyncio.wait({future})
        raise


def _then_close(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        connection.close()  # back to the pool


async def check_out(attempt: Attempt, threads: Threads) -> Receipt:
    """As `checkout.check_out`. Cancelled while it waits without a thread, it leaves the queue;
    cancelled later, the sale is finished first."""
    selling = STRATEGIES[attempt.lock].buy
    if not (isinstance(selling, sell_under) and selling.lock_for is redis_lock):
        return await in_thread(threads.whole, partial(checkout.check_out, attempt))
    with checkout.named_errors(attempt), waiting_room.place(attempt.product):
        if settings.BUY_RATE_LIMIT is not None or not on_sale.is_known(attempt.product):
            await _named(threads, attempt, partial(checkout.admit_attempt, attempt))
        await apoint("begins", lock=attempt.lock, product=attempt.product, sale=attempt.sale)
        try:
            return await _under_lock(attempt, selling, threads)
        except checkout.MAY_HAVE_BOUGHT as refusal:
            if attempt.key is None:
                raise
            return await _named(threads, attempt, partial(checkout.order_again, attempt, refusal))


async def _under_lock(attempt: Attempt, selling: sell_under, threads: Threads) -> Receipt:
    def section(lease: AsyncLease) -> Receipt:
        with inside(lease):
            return selling.section(attempt, lease)

    lock = AsyncRedisLock(async_locks_client(), attempt.lock_name, **options_of(attempt))
    await apoint("acquire")
    lease = None
    try:
        async with lock.hold(wait=settings.SHOP_LOCK_WAIT) as lease:
            receipt = await _named(threads, attempt, partial(section, lease))
    finally:
        if lease is not None:  # released also after a purchase that sold nothing
            await apoint("released", **of_released(lease))
    return receipt.under(lease)


async def _named(threads: Threads, attempt: Attempt, call: Callable[[], T]) -> T:
    """The call in a short thread, which names its errors: the connection that failed is its own."""
    return await in_thread(threads.short, checkout.named_errors(attempt)(call))
