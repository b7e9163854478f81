"""Locks for Redis and Valkey: RedisLock to use, locks.classic to learn from."""

from __future__ import annotations

from locks.errors import LockBackendError, LockError, LockLost, LockNotHeld, LockTimeout
from locks.lease import Lease, Release
from locks.lock import Lock
from locks.redis_lock import RedisLock

__all__ = [
    "Lease",
    "Lock",
    "LockBackendError",
    "LockError",
    "LockLost",
    "LockNotHeld",
    "LockTimeout",
    "RedisLock",
    "Release",
]
