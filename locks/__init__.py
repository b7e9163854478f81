"""RedisLock: a fair, fenced, renewed lock on one Redis or Valkey. Start with README.md.

The classes for asyncio and for several locks at once are imported when they are first used.
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
from .redis_lock import RedisLock
from .sans_io.protocol import Inspection

if TYPE_CHECKING:
    from .aio import AsyncLease, AsyncRedisLock
    from .multi_lock import MultiLease, MultiLock

__all__ = [
    "AsyncLease",
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
#: Lazily imported names, by submodule.
LAZY_NAMES = {
    ".aio": ("AsyncLease", "AsyncRedisLock"),
    ".multi_lock": ("MultiLease", "MultiLock"),
}

if not TYPE_CHECKING:  # if type checkers saw this function, they would accept every name

    def __getattr__(name: str) -> Any:
        for submodule, names in LAZY_NAMES.items():
            if name in names:
                return getattr(import_module(submodule, __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
