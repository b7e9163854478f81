"""Helpers for tests of asyncio: locks in a new event loop, and tasks that a test cancels."""

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
    """Decorate a coroutine function as a test that pytest can call. It runs in a new event loop."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def open_lock_maker(port: int) -> AsyncIterator[MakeLock]:
    """Yield a function that makes locks with a new client.

    At the end of the block close the client, its connections and the tasks of its locks.
    """
    client = redis.asyncio.Redis(port=port)
    yield lambda name, **options: AsyncRedisLock(client, name, **{"ttl": 30, **options})
    for resources in client_resources._resources_by_client.pop(client.connection_pool, {}).values():
        await resources.closing_generator.aclose()
    await client.aclose()


@asynccontextmanager
async def open_lock(
    port: int, name: str = "tested", **options: Any
) -> AsyncIterator[AsyncRedisLock]:
    """Yield a lock with a new client, and close that client at the end of the block."""
    async with open_lock_maker(port) as make_lock:
        yield make_lock(name, **options)


async def wait_until(condition: Callable[[], Any], within: float = 3.0) -> None:
    """Wait until the condition holds. Raise TimeoutError after `within` seconds.

    The condition is a function that returns a truth value, or a coroutine with a truth value.
    """
    async with asyncio.timeout(within):
        while True:
            outcome = condition()
            is_met = await outcome if inspect.iscoroutine(outcome) else outcome
            if is_met:
                return
            await asyncio.sleep(0.002)


async def is_free(*locks: AsyncRedisLock) -> bool:
    """Return whether the locks have neither holders nor waiters."""
    inspections = [await lock.inspect() for lock in locks]
    return all(inspection.owner is None and not inspection.waiters for inspection in inspections)


async def has_waiters(lock: AsyncRedisLock, count: int = 1) -> bool:
    """Return whether the lock has exactly this many waiters."""
    return len((await lock.inspect()).waiters) == count


class CancellingRun:
    """Runs a coroutine, and cancels the task that runs it when the coroutine awaits.

    Args:
        coroutine: The coroutine. The task that awaits run() runs it.
        await_number: The number of the await at which the task is cancelled, from 1.
        after_result: False: cancel before the awaited future is done. True: cancel when the future
            is done, but before the task resumes. Then the task never sees the result of the
            future, such as a reply or a lock.

    Attributes:
        has_cancelled: Whether the coroutine has reached that await.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], await_number: int, *, after_result: bool
    ) -> None:
        self.has_cancelled = False
        self._coroutine = coroutine
        self._await_number = await_number
        self._after_result = after_result

    async def run(self) -> Any:
        """Run the coroutine and return its result, unless the cancellation ends it."""
        return await self._run_and_cancel()

    @types.coroutine
    def _run_and_cancel(self) -> Generator[Any, Any, Any]:
        """Run the coroutine as `await self._coroutine` would, and cancel the task at one await.

        At each await the coroutine yields the awaited future, or None for asyncio.sleep(0). This
        generator yields it to the event loop. The loop resumes the generator with a value or an
        exception, and the generator passes that to the coroutine.
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
