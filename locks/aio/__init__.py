"""The lock for asyncio. It shares its decisions with the lock for threads, one folder up."""

from .lease import AsyncLease
from .redis_lock import AsyncRedisLock

__all__ = ["AsyncLease", "AsyncRedisLock"]
