"""Clients of the locks' Redis, for threads and for event loops.

If there are Sentinels, the clients ask them for the master, and so find it after a failover.
"""

import copy
from functools import cache
from typing import Any, cast

import redis
import redis.asyncio
from django.conf import settings
from django_redis import get_redis_connection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.connection import SSLConnection
from redis.sentinel import SentinelConnectionPool


@cache
def locks_client() -> redis.Redis:
    """Return the client of the cache `locks`: no pickling, no retries, one pool per process."""
    return cast(redis.Redis, get_redis_connection("locks"))


@cache
def async_locks_client() -> redis.asyncio.Redis:
    """Return the client of the locks' Redis for asyncio: no retries, one pool per process."""
    timeouts = {
        name: settings.LOCKS_POOL[name] for name in ("socket_timeout", "socket_connect_timeout")
    }
    # redis-py's clients do not retry if they are made by from_url(), so no option is needed here.
    if not settings.REDIS_SENTINELS:
        return redis.asyncio.Redis.from_url(settings.REDIS_LOCKS_URL, **timeouts)
    url_parts: dict[str, Any] = dict(parse_url(settings.REDIS_LOCKS_URL))
    options: dict[str, Any] = {
        name: url_parts[name] for name in ("username", "password", "db") if name in url_parts
    }
    options["ssl"] = settings.REDIS_LOCKS_URL.startswith("rediss:")
    options |= timeouts
    # Without these options, redis-py would ask a dead Sentinel several times before the next one.
    sentinel_options = {**timeouts, "retry": AsyncRetry(NoBackoff(), 0)}
    sentinel = Sentinel(settings.REDIS_SENTINELS, sentinel_kwargs=sentinel_options, **options)  # type: ignore[no-untyped-call]
    return cast(redis.asyncio.Redis, sentinel.master_for(settings.REDIS_SENTINEL_MASTER))


class MasterPool(SentinelConnectionPool):
    """A pool whose connections each ask the Sentinels for the current master."""

    def __init__(self, service_name: str, sentinel_manager: Any, **kwargs: Any) -> None:
        # A URL with rediss:// has set SSLConnection. With `ssl` instead, redis-py selects a class
        # for TLS that asks the Sentinels.
        if kwargs.get("connection_class") is SSLConnection:
            del kwargs["connection_class"]
            kwargs["ssl"] = True
        super().__init__(service_name, _MasterFinder(sentinel_manager), **kwargs)  # type: ignore[no-untyped-call]
        # super() has set this attribute to the _MasterFinder, which has no list of Sentinels.
        self.sentinel_manager = sentinel_manager


class _MasterFinder:
    """A Sentinel manager that only finds masters, with a copy of the real manager's list.

    redis-py moves the Sentinel that answered to the front of the list, which all threads share. If
    two threads do that at once, one Sentinel is duplicated and another is lost. In the end only one
    would be left.
    """

    def __init__(self, sentinel_manager: Any) -> None:
        self.sentinel_manager = sentinel_manager

    def discover_master(self, service_name: str) -> Any:
        """Return the address of the master.

        redis-py changes the list of Sentinels during the call. So the call works on a copy of the
        list, which then replaces the list that all threads share.
        """
        manager_copy = copy.copy(self.sentinel_manager)
        manager_copy.sentinels = list(manager_copy.sentinels)
        address = manager_copy.discover_master(service_name)
        self.sentinel_manager.sentinels = manager_copy.sentinels
        return address
