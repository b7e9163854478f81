"""Cancels a task at a chosen one of its awaits, so that every await has its turn."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from .. import AsyncRedisLock


class Stepped:
    """Runs a coroutine and cancels it at its n-th await.

    late   False: before what it awaits is done. True: after, but before the task goes on, so that
           what it was given (a reply, a lock) has reached nobody
    fired  whether it came to the n-th await at all
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
        awaits, sent, thrown = 0, None, None
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


async def until(condition: Callable[[], Awaitable[Any]], within: float = 3.0) -> None:
    """Return when the condition holds. Fails after `within` seconds."""
    async with asyncio.timeout(within):
        while not await condition():
            await asyncio.sleep(0.002)


async def waits(lock: AsyncRedisLock, waiters: int = 1) -> bool:
    return len((await lock.inspect()).waiters) == waiters


async def is_so(value: bool) -> bool:
    return value
