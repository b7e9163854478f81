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

MakeLock = Callable[..., AsyncRedisLock]
P = ParamSpec("P")


def looped(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorate a coroutine function as a test that runs in a new event loop."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def locks_on(port: int) -> AsyncIterator[MakeLock]:
    """Yield a function that makes locks of a new client, whose tasks end with the block."""
    client = redis.asyncio.Redis(port=port)
    yield lambda name, **options: AsyncRedisLock(client, name, **{"ttl": 30, **options})
    for resources in client_resources._shared.pop(client.connection_pool, {}).values():
        await resources.end.aclose()
    await client.aclose()


@asynccontextmanager
async def lock_on(port: int, name: str = "tested", **options: Any) -> AsyncIterator[AsyncRedisLock]:
    """Yield a lock of a new client, whose tasks end with the block."""
    async with locks_on(port) as make:
        yield make(name, **options)


async def wait_until(condition: Callable[[], Any], within: float = 3.0) -> None:
    """Wait until the condition, which may be a coroutine, holds. Fail after `within` seconds."""
    async with asyncio.timeout(within):
        while not (await outcome if inspect.iscoroutine(outcome := condition()) else outcome):
            await asyncio.sleep(0.002)


async def is_free(*locks: AsyncRedisLock) -> bool:
    """Return whether the locks have neither holders nor waiters."""
    inspections = [await lock.inspect() for lock in locks]
    return all((state.owner, state.waiters) == (None, ()) for state in inspections)


async def has_waiters(lock: AsyncRedisLock, waiters: int = 1) -> bool:
    """Return whether the lock has exactly this many waiters."""
    return len((await lock.inspect()).waiters) == waiters


class Stepped:
    """Runs a coroutine and cancels it at its n-th await.

    at: The number of the await, from 1.
    late: False cancels before the awaited future is done. True cancels after that, but before the
        task resumes, so that the task never sees the result (a reply, a lock).
    fired: Whether the coroutine reached the n-th await.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: int, *, late: bool) -> None:
        self.fired = False
        self._coroutine = coroutine
        self._at = at
        self._late = late

    async def run(self) -> Any:
        return await self._steps()

    @types.coroutine
    def _steps(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        awaits = 0
        sent = None
        thrown = None
        while True:
            try:
                if thrown is None:
                    awaited = self._coroutine.send(sent)
                else:
                    awaited = self._coroutine.throw(thrown)
            except StopIteration as end:
                return end.value
            awaits += 1
            if awaits == self._at and not self.fired:
                self.fired = True
                if self._late and awaited is not None and not awaited.done():
                    awaited.add_done_callback(lambda _: task.cancel())
                else:
                    task.cancel()
            thrown = None
            try:
                sent = yield awaited
            except BaseException as error:
                thrown = error
