"""The resources that all locks of one client share in one event loop.

The resources are a connection, the wake-ups and the renewals. ../client_resources.py explains why
each client has separate ones. Each loop has separate ones because a connection belongs to a loop.
The resources end with the client or the loop, whichever ends first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from ..connection import Address
from .connections import AsyncConnections
from .loop_end import close_with_loop
from .sentinel_pool import copy_sentinel_pool
from .wakeups import AsyncWakeUps
from .watchdog import AsyncWatchdog

if TYPE_CHECKING:
    from .cluster import AsyncSlotResources

    #: The shared resources that serve one lock in one event loop.
    AsyncResources: TypeAlias = "AsyncClientResources | AsyncSlotResources"


class AsyncClientResources:
    """The connections, waiters and watchdog that all locks of a client share, in one loop.

    They end with the client or the loop.

    Attributes:
        closing_generator: Closes the resources: see close_with_loop().
    """

    def __init__(self, client: Any) -> None:
        pool = client.connection_pool
        sentinel_pool = copy_sentinel_pool(pool)
        if sentinel_pool is None:
            address = Address(pool)
        else:
            address = Address(pool, connection_pool=sentinel_pool)
        self.connections = AsyncConnections(address)
        self.watchdog = AsyncWatchdog(address)
        self.wakeups = AsyncWakeUps(address, self.watchdog)
        self.connections.on_server_became_replica = self.wakeups.resubscribe
        self.watchdog.connections.on_server_became_replica = self.connections.leave_replica
        self.wakeups.on_server_became_replica = self.connections.retire_all
        self.closing_generator = close_with_loop(self.wakeups, self.watchdog, self.connections)

    def get_resources_of(self, key: bytes) -> AsyncClientResources:
        """Return this object for every key, because there is only one server."""
        return self


#: The resources of each client and loop. The first key is the pool of the client; if the client is
#: one of a cluster, it is the client itself.
_resources_by_client: WeakKeyDictionary[Any, dict[asyncio.AbstractEventLoop, Any]] = (
    WeakKeyDictionary()
)


async def get_shared_resources(client: Any, make: Callable[[Any], Any]) -> Any:
    """Return the shared resources of a client in the running loop; create them on first use.

    Args:
        client: The client.
        make: Creates the resources from the client.
    """
    loop = asyncio.get_running_loop()
    pool_or_cluster = getattr(client, "connection_pool", client)
    resources_by_loop = _resources_by_client.setdefault(pool_or_cluster, {})
    resources = resources_by_loop.get(loop)
    if resources is None:
        # Forget closed loops. list() copies, because another thread's loop may change the dict.
        for known_loop in list(resources_by_loop):
            if known_loop.is_closed():
                resources_by_loop.pop(known_loop, None)
        resources = make(client)
        resources_by_loop[loop] = resources
        # This registers the generator with the loop, so that the loop closes it at its end.
        await anext(resources.closing_generator)
    return resources
