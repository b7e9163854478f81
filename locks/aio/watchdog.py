"""The task that renews all leases of one loop on one server, and marks the lost ones."""

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Any

from ..clock import now
from ..connection import Address
from ..sans_io.options import Options
from ..sans_io.protocol import Call
from ..sans_io.renewals import Renewals
from ..watchdog import IDLE_SECONDS, RETRY_DELAY_SECONDS
from .connections import AsyncConnections, reply_or_exception, run_async

logger = logging.getLogger(__name__)


class AsyncWatchdog(Renewals):
    """The leases of one loop on one server, and the task that renews them."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        # A separate connection, so that renewals are not queued behind other commands.
        self.connections = AsyncConnections(address)
        self._task: asyncio.Task[None] | None = None
        self._wake_up_event = asyncio.Event()
        #: Time of our clock until which the task sleeps. Infinity: nothing is due, or the task does
        #: not run. Minus infinity: the task is awake.
        self._wakes_at = math.inf
        self._closed = False

    async def aclose(self) -> None:
        """End the task. Leases are no longer renewed."""
        self._closed = True
        self.renewals.clear()  # a renewal refers to its lock, and a lock to its client
        self.abandoned.clear()
        if self._task is not None:
            self._task.cancel()  # not awaited: the loop may be ending
        await self.connections.aclose()

    def abandon(self, token: str, lock: Options[Any]) -> None:
        """Release this token as Renewals.abandon() does, unless the loop is ending."""
        if not self._closed:  # a task that is started while the loop ends would never finish
            super().abandon(token, lock)

    def wake_before(self, due: float) -> None:
        """Wake the task, or start it, if it would sleep past this time."""
        if due >= self._wakes_at:
            return
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), name="locks.watchdog")
            self._task.add_done_callback(self._on_task_done)
        self._wake_up_event.set()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Start the task again if it was cancelled while leases remain.

        asyncio.run() cancels all tasks when its main coroutine ends. Some tasks may then hold locks
        for a while to clean up, so their leases must still be renewed.
        """
        if task.cancelled() and not self._closed and self.get_next_due() < math.inf:
            self.wake_before(-math.inf)

    async def _run(self) -> None:
        """Renew and release what is due, until there was nothing to do for IDLE_SECONDS."""
        try:
            while await self._sleep_until_due():
                try:
                    await self._renew_due()
                except Exception:
                    logger.exception("the watchdog failed, and tries again")
                    await asyncio.sleep(RETRY_DELAY_SECONDS)
        finally:
            self._task = None
            self._wakes_at = math.inf
        await self.connections.aclose()

    async def _renew_due(self) -> None:
        """Renew the leases and release the abandoned tokens that are due."""
        # Not part of _run(), whose local variables would keep the last locks alive while it sleeps.
        await run_async(self.generate_due_batches(), lambda batch: self._run_batch(*batch))

    async def _run_batch(self, calls: Sequence[Call], timeout: float) -> list[Any]:
        """Send all calls, then return their replies, or exceptions in place of replies."""
        replies = [self.connections.call(call, timeout=timeout) for call in calls]
        try:
            return [await reply_or_exception(reply) for reply in replies]
        finally:
            for reply in replies:
                reply.cancel()  # has no effect on replies that have arrived

    async def _sleep_until_due(self) -> bool:
        """Sleep until a renewal or release is due, and return True.

        Return False if nothing became due within IDLE_SECONDS.
        """
        self._wake_up_event.clear()
        due = self.plan_wake_up()
        self._wakes_at = due
        sleep_seconds = IDLE_SECONDS if due == math.inf else max(0.0, due - now())
        timer = asyncio.get_running_loop().call_later(sleep_seconds, self._wake_up_event.set)
        try:
            await self._wake_up_event.wait()
        finally:
            timer.cancel()
            self._wakes_at = -math.inf  # the task is awake, so it need not be woken
        return due < math.inf or self.get_next_due() < math.inf
