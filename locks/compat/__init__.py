"""redis-py's Lock, kept by RedisLock: change one argument, and get its queue and its wake-ups.

    client.lock("report", timeout=30, lock_class=locks.compat.Lock)
    CACHES = {"default": {"OPTIONS": {"REDIS_CLIENT_CLASS": "locks.compat.Redis"}, ...}}

The key is redis-py's, so old and new locks of one name exclude each other while a change is rolled
out. FROM_REDIS_PY.md has the steps, and what differs.
"""

from __future__ import annotations

from .client import Redis as Redis
from .lock import Lock as Lock
