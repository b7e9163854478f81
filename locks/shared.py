"""What all locks of one client share in a process: connections, wake-ups, renewals.

By client, that is by its connection pool, and by nothing less: two clients of one address may have
different users, or verify the server differently, and neither may act as the other.
"""

from __future__ import annotations

import os
import weakref
from typing import Any
from weakref import WeakKeyDictionary

from .command import Address
from .wakeups import WakeUps
from .watchdog import Watchdog
from .wire import Connections


class Shared:
    """Lives as long as its client, or a lock of it. Threads and connections end with it."""

    def __init__(self, pool: Any) -> None:
        address = Address(pool)
        self.connections = Connections(address, most=pool.max_connections)
        self.watchdog = Watchdog(address)
        self.wakeups = WakeUps(address, self.watchdog)
        self.connections.on_demoted = self.wakeups.resubscribe
        self.watchdog.on_demoted = self.connections.demoted
        self.wakeups.on_demoted = self.connections.disconnect
        parts = self.connections, self.watchdog, self.wakeups
        weakref.finalize(self, _close, *parts).atexit = False

    def after_fork(self) -> None:
        """In the child: what the parent has open is the parent's."""
        self.connections.disconnect()
        self.wakeups.after_fork()
        self.watchdog.after_fork()


def _close(connections: Connections, watchdog: Watchdog, wakeups: WakeUps) -> None:
    connections.disconnect()
    wakeups.close()
    watchdog.close()


_shared: WeakKeyDictionary[Any, Shared] = WeakKeyDictionary()


def shared_of(pool: Any) -> Shared:
    """The one of this process for the client with this pool."""
    found = _shared.get(pool)
    return found if found is not None else _shared.setdefault(pool, Shared(pool))


def _after_fork() -> None:
    for shared in list(_shared.values()):
        shared.after_fork()


os.register_at_fork(after_in_child=_after_fork)
