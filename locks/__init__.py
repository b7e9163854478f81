"""RedisLock: a fair, fenced, renewed lock on one Redis or Valkey. Start with README.md."""

from __future__ import annotations

from .aio import AsyncLease, AsyncMultiLease, AsyncMultiLock, AsyncRedisLock
from .errors import LockBackendError, LockError, LockLost, LockNotHeld, LockTimeout
from .lease import Lease, LossReason, Release
from .lock import Lock
from .metrics import Metrics
from .multi import MultiLease, MultiLock
from .protocol import Inspection
from .redis_lock import RedisLock

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
