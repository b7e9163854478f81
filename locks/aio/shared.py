"""What all locks of one client share in one event loop: a connection, wake-ups, renewals.

By client for the reasons given in ../shared.py, and by loop because connections belong to theirs.
They end with the client, or with the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from weakref import WeakKeyDictionary

from ..command import Address
from .connections import AsyncConnections
from .wakeups import AsyncWakeUps
from .watchdog import AsyncWatchdog


class AsyncShared:
    """Lives as long as its client and its loop."""

    def __init__(self, pool: Any) -> None:
        address = Address(pool)
        self.connections = AsyncConnections(address)
        self.watchdog = AsyncWatchdog(address)
        self.wakeups = AsyncWakeUps(address, self.watchdog)
        self.connections.on_demoted = self.wakeups.resubscribe
        self.watchdog.connections.on_demoted = self.connections.demoted
        self._end = _until_the_end(self.wakeups, self.watchdog, self.connections)

    async def open(self) -> None:
        """Have it closed in the end. Does not suspend."""
        await anext(self._end)


async def _until_the_end(*parts: Any) -> AsyncGenerator[None, None]:
    """Closed by the loop when it shuts down, or when its AsyncShared is collected."""
    try:
        yield
    finally:
        for part in parts:
            await part.aclose()


_shared: WeakKeyDictionary[Any, dict[asyncio.AbstractEventLoop, AsyncShared]] = WeakKeyDictionary()


async def shared_of(pool: Any) -> AsyncShared:
    """The one of the running loop for the client with this pool. Does not suspend."""
    loop = asyncio.get_running_loop()
    by_loop = _shared.get(pool)
    found = by_loop.get(loop) if by_loop is not None else None
    if found is None:
        if by_loop is None:
            by_loop = _shared[pool] = {}
        for ended in [each for each in by_loop if each.is_closed()]:
            del by_loop[ended]
        found = by_loop[loop] = AsyncShared(pool)
        await found.open()
    return found
