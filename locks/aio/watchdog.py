"""The task that renews all leases of one loop on one server, and marks the lost ones."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Any

from ..connection import Address
from ..renewals import Renewal, Renewals
from ..scripts import Call
from ..support import now
from .connections import AsyncConnections

logger = logging.getLogger(__name__)

#: Seconds without anything to renew after which the task and its connection end.
IDLE = 10.0


class AsyncWatchdog(Renewals):
    """The leases of one loop on one server, and the task that renews them."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self.on_due = self._wake_for
        self.connections = AsyncConnections(address)  # its own: not behind anybody's commands
        self._task: asyncio.Task[None] | None = None
        self._nap: asyncio.Future[None] | None = None
        self._idle = False
        self._tick = 1.0
        self._wakes_at = math.inf

    def add(self, renewal: Renewal) -> None:
        """Renew this lease from now on."""
        super().add(renewal)
        self._idle = False
        self._tick = renewal.ttl / 4  # before its renewal is due
        self._wake_for(renewal.due)

    async def aclose(self) -> None:
        """End the task, renewing nothing any more."""
        if self._task is not None:
            self._task.cancel()  # and not awaited: see Link.aclose
        await self.connections.aclose()

    def _wake_for(self, due: float) -> None:
        if due >= self._wakes_at:
            return
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), name="locks.watchdog")
        self._rouse()

    def _rouse(self) -> None:
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(None)

    async def _run(self) -> None:
        try:
            while await self._sleep():
                try:
                    for batch in self.due():
                        batch.settle(await self._ask(batch.calls, batch.timeout))
                except Exception:
                    logger.exception("the watchdog goes on after an error of its own")
                    await asyncio.sleep(0.05)
        finally:
            self._task = None
            self._wakes_at = math.inf
        await self.connections.aclose()

    async def _ask(self, calls: Sequence[Call], timeout: float) -> list[Any]:
        """Replies, or the exception in the place of one."""
        return await self.connections.call_all(calls, within=timeout)

    async def _sleep(self) -> bool:
        """Sleep until something is due. Returns False when there is nothing left to do."""
        due = self.next_due()
        if not self._idle:  # leases come and go: look again before sleeping for longer
            due = min(due, now() + self._tick)
        self._idle = True
        loop = asyncio.get_running_loop()
        self._nap = loop.create_future()
        self._wakes_at = due
        timer = loop.call_later(IDLE if due == math.inf else max(0.0, due - now()), self._rouse)
        try:
            await self._nap
        finally:
            timer.cancel()
            self._nap = None
            self._wakes_at = -math.inf  # it looks at everything before it sleeps again
        return due < math.inf or self.next_due() < math.inf
