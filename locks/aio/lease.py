"""The leases of asyncio, and the context manager of their block."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncContextDecorator, suppress
from types import TracebackType
from typing import Any, TypeVar

from ..errors import LockLost, LockNotHeld, LossReason, Release
from ..lazy import get_or_create
from ..lease import BaseLease, LeaseOperations
from ..sans_io.protocol import WireError

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


class AsyncLease(BaseLease):
    """A lease that any task of its event loop may check or release.

    `BaseLease` describes its attributes.

    In another loop release(), extend(), owned() and hand_over() raise LockNotHeld.
    """

    def __init__(
        self,
        *,
        send_release: Callable[[], asyncio.Future[Any]],
        evaluate_release: Callable[[BaseLease, Any], Release],
        on_lost: Callable[[AsyncLease, LossReason], None] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(**attributes)
        self._loop = asyncio.get_running_loop()
        self._send_release = send_release
        self._evaluate_release = evaluate_release
        self._on_lost = on_lost
        self._release_reply: asyncio.Future[Any] | None = None
        self._cancel_block: Callable[[], None] | None = None  # called when the lease is lost

    @property
    def lost_event(self) -> asyncio.Event:
        """An event that is set when the renewing task, check() or extend() notices the loss."""
        event = get_or_create(self, "_lost_event", asyncio.Event)
        if self.loss is not None:
            event.set()
        return event

    async def release(self) -> Release:
        """Release the lock.

        release() may be called again after the outcome UNKNOWN and after a cancellation. After a
        cancellation the second call waits for the reply to the first call's command.

        Returns:
            The outcome.

        Raises:
            LockNotHeld: The lease was released before, or belongs to another process or event loop.
        """
        release_reply = self.start_release()
        reply: Any
        try:
            reply = await asyncio.shield(release_reply)
        except WireError as error:
            reply = error
        except BaseException as error:
            self.outcome = Release.UNKNOWN
            if isinstance(error, Exception):
                # No reply will come: a second call must send the release again. (After a
                # cancellation, which is not an Exception, the reply may still come.)
                self._release_reply = None
            raise
        outcome = self._end_release(self._evaluate_release(self, reply))
        if outcome is Release.UNKNOWN:
            self._release_reply = None
        return outcome

    def start_release(self) -> asyncio.Future[Any]:
        """Send the release unless it was sent before. Return the future of its reply.

        Raises LockNotHeld as release() does.
        """
        self._check_loop()
        self._begin_release()
        self._cancel_block = None
        if self._release_reply is None:
            self._release_reply = self._send_release()
        return self._release_reply

    async def extend(self, seconds: float) -> None:
        """Make the lease last for at least `seconds` from now, as `Lease.extend` does.

        Args:
            seconds: Seconds from now.
        """
        operations = self._get_operations()
        await operations.run(operations.extend(self, seconds))

    async def owned(self) -> bool:
        """Return whether the server says that the lock is ours, as `Lease.owned` does."""
        operations = self._get_operations()
        return bool(await operations.run(operations.owned(self)))

    async def hand_over(self, within: float | None = None) -> str:
        """Give the lease to another process, with or without asyncio, as `Lease.hand_over` does.

        After a cancellation this process keeps the lease and renews it. But the server may still
        execute the command, so each renewal is trusted for at most `within` seconds, as after the
        LockBackendError of `Lease.hand_over`.

        Args:
            within: Seconds after which the lease ends unless it is adopted. None: the lock's ttl.

        Returns:
            The text that the other process passes to `lock.adopt()`.
        """
        operations = self._get_operations()
        return str(await operations.run(operations.hand_over(self, within)))

    def _get_operations(self) -> LeaseOperations:
        """Return the operations of this lease, after a check that it is held.

        Raises the exceptions of BaseLease._get_operations(). Also raises LockNotHeld if the running
        loop is not that of the lease.
        """
        self._check_loop()
        return super()._get_operations()

    def _check_loop(self) -> None:
        """Raise LockNotHeld unless the running loop is that of the lease."""
        if self._loop is not asyncio.get_running_loop():
            message = "the lease belongs to another event loop; use it there"
            raise LockNotHeld(message, name=self.name)

    def _announce_loss(self, reason: LossReason) -> None:
        """Announce the loss in the loop of the lease.

        In that loop this happens at once. Called in another thread or loop, it happens soon, unless
        the loop of the lease is closed.
        """
        try:
            is_in_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_in_loop = False
        if is_in_loop:
            self._handle_loss_in_loop(reason)
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._handle_loss_in_loop, reason)

    def _handle_loss_in_loop(self, reason: LossReason) -> None:
        """Set `lost_event`, cancel the block if cancel_on_loss is set, and schedule on_lost."""
        self.lost_event.set()
        if self._cancel_block is not None:
            self._cancel_block()
        if self._on_lost is not None:
            self._loop.call_soon(self._call_on_lost, self._on_lost, reason)

    def _call_on_lost(
        self, on_lost: Callable[[AsyncLease, LossReason], None], reason: LossReason
    ) -> None:
        """Call on_lost, and log an exception that it raises."""
        try:
            on_lost(self, reason)
        except Exception:
            logger.exception("on_lost failed")


class AsyncHoldContext(AbstractAsyncContextManager[AsyncLease], AsyncContextDecorator):
    """The context manager and decorator that AsyncRedisLock.hold() returns."""

    def __init__(
        self,
        acquire: Callable[[float | None], Awaitable[AsyncLease]],
        wait: float | None,
        *,
        cancel_on_loss: bool,
    ) -> None:
        self._acquire = acquire
        self._wait = wait
        self._cancel_on_loss = cancel_on_loss
        self._lease: AsyncLease | None = None
        self._task: asyncio.Task[Any] | None = None
        self._has_cancelled_task = False
        self._earlier_cancel_requests = 0  # of the task, before the block

    def _recreate_cm(self) -> AsyncHoldContext:
        """Return a new context for AsyncContextDecorator: each call has its own lease."""
        return AsyncHoldContext(self._acquire, self._wait, cancel_on_loss=self._cancel_on_loss)

    def __call__(self, function: F) -> F:
        """Decorate a coroutine function, which holds the lock during each of its calls.

        Raises:
            TypeError: `function` is not a coroutine function: an `async def` without `yield`.
        """
        if not inspect.iscoroutinefunction(function):
            raise TypeError(
                f"only a coroutine function can be decorated, not {function!r}; "
                f"use `async with lock.hold(...)` inside it"
            )
        return super().__call__(function)

    async def __aenter__(self) -> AsyncLease:
        if self._lease is not None:
            raise RuntimeError(f"{self._lease.name}: call lock.hold() anew for each block")
        lease = await self._acquire(self._wait)
        self._lease = lease
        if self._cancel_on_loss:
            self._task = asyncio.current_task()
            self._has_cancelled_task = False
            assert self._task is not None
            self._earlier_cancel_requests = self._task.cancelling()
            lease._cancel_block = self._cancel_block
        return lease

    def _cancel_block(self) -> None:
        """Cancel the task of the block, because the lease was lost."""
        assert self._task is not None
        assert self._lease is not None
        # If the block itself noticed the loss, its call of check() or extend() raises LockLost.
        if asyncio.current_task() is not self._task:
            self._has_cancelled_task = True
            self._task.cancel(f"{self._lease.name}: the lease was lost")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease = self._lease
        assert lease is not None
        lease._cancel_block = None
        self._lease = None
        was_cancelled_by_loss = False
        if self._has_cancelled_task:
            assert self._task is not None
            # A cancellation from outside has priority over ours, as in asyncio.timeout.
            remaining_cancel_requests = self._task.uncancel()
            was_cancelled_by_loss = (
                remaining_cancel_requests <= self._earlier_cancel_requests
                and isinstance(error, asyncio.CancelledError)
            )
        try:
            if lease.outcome is None and not lease.foreign:  # not released in the block
                await lease.release()
        except Exception as release_error:
            if error is None:
                raise
            error.add_note(f"{lease.name}: the release also failed: {release_error!r}")
        if was_cancelled_by_loss:
            raise LockLost(name=lease.name) from error
        if error is not None:
            lease.add_note_to(error)
