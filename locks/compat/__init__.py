"""redis-py's Lock, kept by RedisLock: change one argument, and get its queue and its wake-ups.

    client.lock("report", timeout=30, lock_class=locks.compat.Lock)
    CACHES = {"default": {"OPTIONS": {"REDIS_CLIENT_CLASS": "locks.compat.Redis"}, ...}}

The key is redis-py's, so old and new locks of one name exclude each other while a change is rolled
out. FROM_REDIS_PY.md has the steps, and what differs.
"""

from typing import Any

try:
    from redis import Redis as Client
except ImportError:  # where valkey-py alone is installed
    from valkey import Valkey as Client  # type: ignore[assignment]

from .lock import Lock as Lock


class Redis(Client):
    """A client whose lock() makes the locks of this module. For django-redis: `cache.lock()`."""

    def lock(
        self,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        lock_class: Any = None,
        *more: Any,
        **options: Any,
    ) -> Any:
        """A lock; see redis.Redis.lock()."""
        given = timeout, sleep, blocking, blocking_timeout, *more
        return (lock_class or Lock)(self, name, *given, **options)
