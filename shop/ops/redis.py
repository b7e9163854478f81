"""The locks' Redis: a client for threads, and one for event loops."""

from functools import cache
from typing import Any, cast

import redis
import redis.asyncio
from django.conf import settings
from django_redis import get_redis_connection
from redis.asyncio.connection import parse_url
from redis.asyncio.sentinel import Sentinel


@cache
def locks_client() -> redis.Redis:
    """The raw client of the alias `locks`: no pickling, no retries, one pool per process."""
    return cast(redis.Redis, get_redis_connection("locks"))


@cache
def async_locks_client() -> redis.asyncio.Redis:
    """The same for event loops: where AsyncRedisLock finds its server."""
    pool = settings.LOCKS_POOL
    timeouts = {name: pool[name] for name in ("socket_timeout", "socket_connect_timeout")}
    if not settings.REDIS_SENTINELS:
        return redis.asyncio.Redis.from_url(settings.REDIS_LOCKS_URL, **timeouts)
    url: dict[str, Any] = dict(parse_url(settings.REDIS_LOCKS_URL))
    url = {name: url[name] for name in ("username", "password", "db") if name in url}
    url["ssl"] = settings.REDIS_LOCKS_URL.startswith("rediss:")
    sentinel = Sentinel(settings.REDIS_SENTINELS, sentinel_kwargs=timeouts, **url, **timeouts)  # type: ignore[no-untyped-call]
    return cast(redis.asyncio.Redis, sentinel.master_for(settings.REDIS_SENTINEL_MASTER))
