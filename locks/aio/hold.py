"""What AsyncRedisLock.hold returns: acquires on entering the block, releases on leaving it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncContextDecorator
from types import TracebackType
from typing import Any, TypeVar

from ..errors import LockLost
from .lease import AsyncLease

F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L", bound=AsyncLease, covariant=True)


class AsyncHold(AbstractAsyncContextManager[L], AsyncContextDecorator):
    """For one block, or for every call of a decorated function. The lock may be one of several."""

    def __init__(self, lock: Any, wait: float | None, *, cancel_on_loss: bool) -> None:
        self._lock = lock
        self._wait = wait
        self._cancel_on_loss = cancel_on_loss
        self._lease: L | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._cancelling = 0

    def _recreate_cm(self) -> AsyncHold[L]:
        """For AsyncContextDecorator: each call of a decorated function has a lease of its own."""
        return AsyncHold(self._lock, self._wait, cancel_on_loss=self._cancel_on_loss)

    def __call__(self, function: F) -> F:
        """Decorate a function. Raises TypeError for one that is not `async def`."""
        if not inspect.iscoroutinefunction(function):
            raise TypeError(
                f"{function!r} is not `async def`, so nothing of it runs while the lock is held; "
                f"use `async with lock.hold(...)` inside it"
            )
        return super().__call__(function)

    async def __aenter__(self) -> L:
        if self._lease is not None:
            raise RuntimeError(f"{self._lock.name}: call lock.hold() anew for each block")
        lease: L = await self._lock.acquire(self._wait)
        self._lease = lease
        if self._cancel_on_loss:
            self._task, self._cancelled = asyncio.current_task(), False
            assert self._task is not None
            self._cancelling = self._task.cancelling()
            lease._cancel_body = self._cancel_body
        return lease

    def _cancel_body(self) -> None:
        assert self._task is not None
        if asyncio.current_task() is not self._task:  # else check() raises LockLost there
            self._cancelled = True
            self._task.cancel(f"{self._lock.name}: the lease was lost")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None
        lease._cancel_body = None
        ours = False
        if self._cancelled:
            assert self._task is not None
            # As asyncio.timeout does: a cancellation from outside stays one.
            alone = self._task.uncancel() <= self._cancelling
            ours = alone and isinstance(error, asyncio.CancelledError)
        try:
            if lease.outcome is None and not lease.foreign:  # not released in the block
                await lease.release()
        except Exception as failed:
            if error is None:
                raise
            error.add_note(f"{lease.name}: and its release failed: {failed!r}")
        if ours:
            raise LockLost(name=lease.name) from error
        if error is not None:
            lease.add_note_to(error)
