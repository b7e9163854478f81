"""A substitute for a client's Sentinel pool, with connections to the Sentinels for one event loop.

When a connection through Sentinels is opened, it asks its pool for the address of the master. The
client's own pool sends this request over connections that belong to one loop. But a lock may serve
one loop after another, so the locks of each loop use a substitute. It has only the methods and
attributes that the opening of a connection needs.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any


def copy_sentinel_pool(pool: Any) -> SentinelPool | None:
    """Return a copy of a Sentinel pool, for the running loop.

    Returns None if `pool` does not ask Sentinels for a master.
    """
    manager = getattr(pool, "sentinel_manager", None)
    if hasattr(manager, "sentinels") and pool.is_master:
        return SentinelPool(pool)
    return None


class SentinelPool:
    """A substitute for the client's pool, which asks the Sentinels over connections of this loop.

    Args:
        pool: The client's pool.

    Attributes:
        is_master: True, because the locks use the master only.
        check_connection: Whether a new connection is verified by a PING.
    """

    def __init__(self, pool: Any) -> None:
        self.is_master = True
        self.check_connection = pool.check_connection
        self._pool = weakref.proxy(pool)  # the locks' resources must not keep the client alive
        self._manager = copy.copy(pool.sentinel_manager)
        self._manager.sentinels = [_copy_client(client) for client in self._manager.sentinels]
        self._discovered_address: tuple[str, int] | None = None
        #: The address that the client's pool had when the locks last asked the Sentinels.
        self._pool_address_at_lookup: tuple[str, int] | None = None

    @property
    def master_address(self) -> tuple[str, int] | None:
        """The address that the Sentinels last gave to the locks or to the client."""
        pool_address: tuple[str, int] | None = self._pool.master_address
        has_client_looked_up_later = pool_address != self._pool_address_at_lookup
        return pool_address if has_client_looked_up_later else self._discovered_address

    async def get_master_address(self) -> tuple[str, int]:
        """Ask the Sentinels for the master, and close the connections to them."""
        self._pool_address_at_lookup = self._pool.master_address
        try:
            address: tuple[str, int] = await self._manager.discover_master(self._pool.service_name)
        finally:
            for client in list(self._manager.sentinels):
                await client.connection_pool.disconnect(inuse_connections=False)
        self._discovered_address = address
        return address


def _copy_client(client: Any) -> Any:
    """Return a new client with the same options and its own connections."""
    pool = client.connection_pool
    options = pool.connection_kwargs
    return type(client)(
        connection_pool=type(pool)(connection_class=pool.connection_class, **options)
    )
