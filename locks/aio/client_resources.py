"""What all locks of one client share in one event loop: a connection, wake-ups, renewals.

By client for the reasons in ../client_resources.py, and by loop because connections belong
to one. They end with the client, or with the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from ..connection import Address
from .connections import AsyncConnections
from .loop_end import close_with_loop
from .wakeups import AsyncWakeUps
from .watchdog import AsyncWatchdog

if TYPE_CHECKING:
    from .cluster import AsyncSlotResources

    #: The server connections of one lock in one event loop.
    AsyncResources: TypeAlias = "AsyncClientResources | AsyncSlotResources"


class AsyncClientResources:
    """Lives as long as its client and its loop."""

    def __init__(self, client: Any) -> None:
        address = Address(client.connection_pool)
        self.connections = AsyncConnections(address)
        self.watchdog = AsyncWatchdog(address)
        self.wakeups = AsyncWakeUps(address, self.watchdog)
        self.connections.on_demoted = self.wakeups.resubscribe
        self.watchdog.connections.on_demoted = self.connections.demoted
        self.wakeups.on_demoted = self.connections.leave
        self.end = close_with_loop(self.wakeups, self.watchdog, self.connections)

    def parts(self, key: bytes) -> AsyncClientResources:
        """For any key these, since there is one server."""
        return self


#: By what identifies the client: its pool, or where it has none, itself.
_shared: WeakKeyDictionary[Any, dict[asyncio.AbstractEventLoop, Any]] = WeakKeyDictionary()


async def shared_of(client: Any, make: Callable[[Any], Any]) -> Any:
    """Return the resources of this client in the running loop. Does no I/O."""
    loop = asyncio.get_running_loop()
    identity = getattr(client, "connection_pool", client)
    by_loop = _shared.setdefault(identity, {})
    found = by_loop.get(loop)
    if found is None:
        for each in list(by_loop):  # other threads, with loops of their own, do so, too
            if each.is_closed():
                by_loop.pop(each, None)
        found = by_loop[loop] = make(client)
        await anext(found.end)  # from here on it is closed in the end
    return found
