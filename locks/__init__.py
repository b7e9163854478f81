"""Locks for Redis and Valkey: RedisLock to use, locks.classic to learn from."""

from __future__ import annotations

from locks.errors import LockBackendError, LockError, LockLost, LockNotHeld, LockTimeout
from locks.lease import Lease, Loss, Release
from locks.lock import Lock
from locks.metrics import Metrics
from locks.protocol import Inspection
from locks.redis_lock import RedisLock

__all__ = [
    "Inspection",
    "Lease",
    "Lock",
    "LockBackendError",
    "LockError",
    "LockLost",
    "LockNotHeld",
    "LockTimeout",
    "Loss",
    "Metrics",
    "RedisLock",
    "Release",
]
