"""The lock for asyncio. It and the lock for threads both use ../sans_io for their decisions."""

from .lease import AsyncLease
from .redis_lock import AsyncRedisLock

__all__ = ["AsyncLease", "AsyncRedisLock"]
