"""RedisLock: a fair, fenced, renewed lock on one Redis or Valkey. Start with README.md.

The doors (asyncio, several locks, handing over) are loaded when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    LockBackendError,
    LockError,
    LockLost,
    LockNotHeld,
    LockTimeout,
    LossReason,
    Metrics,
    Release,
)
from .lease import Lease
from .lock import Lock
from .protocol import Inspection
from .redis_lock import RedisLock

if TYPE_CHECKING:
    from .aio import AsyncLease, AsyncRedisLock
    from .several.tasks import AsyncMultiLease, AsyncMultiLock
    from .several.threads import MultiLease, MultiLock

__all__ = [
    "AsyncLease",
    "AsyncMultiLease",
    "AsyncMultiLock",
    "AsyncRedisLock",
    "Inspection",
    "Lease",
    "Lock",
    "LockBackendError",
    "LockError",
    "LockLost",
    "LockNotHeld",
    "LockTimeout",
    "LossReason",
    "Metrics",
    "MultiLease",
    "MultiLock",
    "RedisLock",
    "Release",
]
#: Where those names are that are loaded when they are asked for.
DOORS = {
    ".aio": ("AsyncLease", "AsyncRedisLock"),
    ".several.tasks": ("AsyncMultiLease", "AsyncMultiLock"),
    ".several.threads": ("MultiLease", "MultiLock"),
}

if not TYPE_CHECKING:  # else any name would do

    def __getattr__(name: str) -> Any:
        for door, names in DOORS.items():
            if name in names:
                return getattr(import_module(door, __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
