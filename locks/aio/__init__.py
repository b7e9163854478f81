"""The lock for asyncio. It takes its decisions where the one for threads does, a folder up."""

from __future__ import annotations

from .lease import AsyncLease
from .redis_lock import AsyncRedisLock

__all__ = ["AsyncLease", "AsyncRedisLock"]
