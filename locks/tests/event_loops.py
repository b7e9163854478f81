"""Locks on an event loop that ends with the test, and tasks that are cancelled on it."""

import asyncio
import inspect
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

import redis.asyncio

from .. import AsyncRedisLock
from ..aio import client_resources

#: A function that makes a lock from its name and options.
MakeLock = Callable[..., AsyncRedisLock]
P = ParamSpec("P")


def in_new_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Turn a test that is a coroutine function into a function that runs it in a new event loop."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def open_lock_maker(port: int) -> AsyncIterator[MakeLock]:
    """Yield a function that makes locks with a new client. Their tasks end with the block."""
    client = redis.asyncio.Redis(port=port)
    yield lambda name, **options: AsyncRedisLock(client, name, **{"ttl": 30, **options})
    for resources in client_resources._resources_by_client.pop(client.connection_pool, {}).values():
        await resources.closing_generator.aclose()
    await client.aclose()


@asynccontextmanager
async def open_lock(
    port: int, name: str = "tested", **options: Any
) -> AsyncIterator[AsyncRedisLock]:
    """Yield a lock with a new client. Its tasks end with the block."""
    async with open_lock_maker(port) as make_lock:
        yield make_lock(name, **options)


async def wait_until(condition: Callable[[], Any], within: float = 3.0) -> None:
    """Wait until the condition holds. Fail after `within` seconds.

    The condition may be a coroutine function.
    """
    async with asyncio.timeout(within):
        while True:
            is_met = condition()
            if inspect.iscoroutine(is_met):
                is_met = await is_met
            if is_met:
                return
            await asyncio.sleep(0.002)


async def is_free(*locks: AsyncRedisLock) -> bool:
    """Return whether the locks have neither holders nor waiters."""
    inspections = [await lock.inspect() for lock in locks]
    return all((state.owner, state.waiters) == (None, ()) for state in inspections)


async def has_waiters(lock: AsyncRedisLock, count: int = 1) -> bool:
    """Return whether the lock has exactly this many waiters."""
    return len((await lock.inspect()).waiters) == count


class CancellingRun:
    """Runs a coroutine in the task that awaits run(), and cancels that task at one of its awaits.

    await_number: The number of that await, from 1.
    after_result: False cancels before the awaited future is done. True cancels after that, but
        before the task resumes, so that the task never sees the result (a reply, a lock).
    has_cancelled: Whether the coroutine reached that await.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], await_number: int, *, after_result: bool
    ) -> None:
        self.has_cancelled = False
        self._coroutine = coroutine
        self._await_number = await_number
        self._after_result = after_result

    async def run(self) -> Any:
        return await self._drive()

    @types.coroutine
    def _drive(self) -> Generator[Any, Any, Any]:
        """Run the coroutine as `await self._coroutine` does, and cancel the task at one await.

        The coroutine yields each future that it awaits, or None for asyncio.sleep(0). The event
        loop resumes it with a value or with an exception.
        """
        task = asyncio.current_task()
        assert task is not None
        await_count = 0
        resume_value = None
        resume_error = None
        while True:
            try:
                if resume_error is None:
                    future = self._coroutine.send(resume_value)
                else:
                    future = self._coroutine.throw(resume_error)
            except StopIteration as end:
                return end.value
            await_count += 1
            if await_count == self._await_number:
                self.has_cancelled = True
                if self._after_result and future is not None and not future.done():
                    future.add_done_callback(lambda _: task.cancel())
                else:
                    task.cancel()
            resume_error = None
            try:
                resume_value = yield future
            except BaseException as error:
                resume_error = error
