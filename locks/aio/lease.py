"""Leases for asyncio, the block that holds one, and what every lock for asyncio offers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncContextDecorator, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import LockLost, LockNotHeld, LockTimeout, LossReason, Release
from ..lease import BaseLease
from ..protocol import WireError
from ..support import lazily

if TYPE_CHECKING:
    from ..handover import Keeping

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L", bound="AsyncLease", covariant=True)


class AsyncLease(BaseLease):
    """One acquisition. Belongs to no task, but to its event loop. See `BaseLease` for the rest."""

    def __init__(
        self,
        *,
        send_release: Callable[[], asyncio.Future[Any]],
        found: Callable[[BaseLease, Any], Release],
        on_lost: Callable[[AsyncLease, LossReason], None] | None = None,
        **known: Any,
    ) -> None:
        super().__init__(**known)
        self._loop = asyncio.get_running_loop()
        self._send_release = send_release
        self._found = found
        self._on_lost = on_lost
        self._reply: asyncio.Future[Any] | None = None
        self._cancel_body: Callable[[], None] | None = None

    @property
    def lost_event(self) -> asyncio.Event:
        """Set when the loss is noticed: by the renewing task, or by check()."""
        event = lazily(self, "_lost_event", asyncio.Event)
        if self.loss is not None:
            event.set()
        return event

    async def release(self) -> Release:
        """Release the lock and return what was found; see `Release`.

        Raises LockNotHeld when the lease was released before, or belongs to another process or
        event loop. After UNKNOWN, and after it was cancelled, it may be called again: the command
        is on its way then, and the second call waits for the same reply.
        """
        sent = self.start_release()
        reply: Any
        try:
            reply = await asyncio.shield(sent)
        except WireError as error:
            reply, self._reply = error, None
        except BaseException as error:
            self.outcome = Release.UNKNOWN
            if isinstance(error, Exception):  # no reply will come: send another command
                self._reply = None
            raise
        outcome = self._end_release(self._found(self, reply))
        if outcome is Release.UNKNOWN:
            self._reply = None
        return outcome

    def start_release(self) -> asyncio.Future[Any]:
        """Send the release unless it is on its way; the reply to come. Does not suspend."""
        self._begin_release()
        self._check_loop()
        self._cancel_body = None
        if self._reply is None:
            self._reply = self._send_release()
        return self._reply

    def give_back(self) -> None:
        """Send the release, and leave what it finds to the log and the metrics."""

        def found(reply: asyncio.Future[Any]) -> None:
            if not reply.cancelled():
                self._end_release(self._found(self, reply.exception() or reply.result()))

        self.start_release().add_done_callback(found)

    async def extend(self, seconds: float) -> None:
        """Make the lease last for at least so many seconds from now. See `Lease.extend`."""
        keeping = self._asked_of()
        await keeping.do(keeping.extend(self, seconds))

    async def owned(self) -> bool:
        """Whether the server says that the lock is ours, at this moment. See `Lease.owned`."""
        keeping = self._asked_of()
        return bool(await keeping.do(keeping.owned(self)))

    async def hand_over(self, within: float | None = None) -> str:
        """Give the lease to another process, with or without asyncio. See `Lease.hand_over`.

        Cancelled, it is still held here.
        """
        keeping = self._asked_of()
        return str(await keeping.do(keeping.hand_over(self, within)))

    def _asked_of(self) -> Keeping:
        self._check_loop()
        return super()._asked_of()

    def _check_loop(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise LockNotHeld("the lease belongs to another event loop", name=self.name)

    def _announce(self, reason: LossReason) -> None:
        """Tell the loop; from another thread, soon, and not at all if the loop is closed."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._tell(reason)
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell, reason)

    def _tell(self, reason: LossReason) -> None:
        """Set `lost_event`, cancel the body if that was asked for, and call on_lost soon."""
        self.lost_event.set()
        if self._cancel_body is not None:
            self._cancel_body()
        if self._on_lost is not None:
            self._loop.call_soon(self._call_on_lost, self._on_lost, reason)

    def _call_on_lost(
        self, on_lost: Callable[[AsyncLease, LossReason], None], reason: LossReason
    ) -> None:
        try:
            on_lost(self, reason)
        except Exception:
            logger.exception("on_lost failed")


class AsyncHold(AbstractAsyncContextManager[L], AsyncContextDecorator):
    """What AsyncLock.hold returns: acquires on entering, releases on leaving."""

    def __init__(self, lock: AsyncLock[L], wait: float | None, *, cancel_on_loss: bool) -> None:
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
        self._lease = lease = await self._lock.acquire(self._wait)
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


class AsyncLock(ABC, Generic[L]):
    """What AsyncRedisLock and AsyncMultiLock offer, as `Lock` does for threads."""

    name: str

    @abstractmethod
    async def acquire(self, wait: float | None) -> L:
        """Take the lock, queueing for at most `wait` seconds (None: as long as it takes)."""

    async def try_acquire(self) -> L | None:
        """Take the lock if it is free now; None if it is not."""
        try:
            return await self.acquire(0.0)
        except LockTimeout:
            return None

    def hold(self, wait: float | None, *, cancel_on_loss: bool = False) -> AsyncHold[L]:
        """Hold the lock for the block, or as `@lock.hold(wait=5)` for every call of a coroutine.

        As `Lock.hold`: leaving the block never replaces the block's own exception, and a lease that
        expired meanwhile shows in `lease.outcome` and in the log.

        cancel_on_loss  cancel the block at its next await when the lease is lost; it then ends with
                        LockLost. A cancellation from outside stays CancelledError.
        """
        return AsyncHold(self, wait, cancel_on_loss=cancel_on_loss)
