"""The locks that are compared, each as a context manager, made anew for every acquisition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
)
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock
import redis_lock  # type: ignore[import-untyped]  # python-redis-lock

from .. import AsyncRedisLock, RedisLock

#: Seconds: how long each lock waits at most, and its lease.
WAIT, TTL = 60.0, 30


@contextmanager
def floor(client: redis.Redis, name: str) -> Iterator[None]:
    """The least that a hand-over through one server takes: two commands, past redis-py's retries.

    A token in a list goes round. It is no lock: the token of a holder that dies is gone, and
    somebody has to put the first one in.
    """
    connection: Any = client.connection_pool.get_connection()
    connection.send_command("BLPOP", name, 0)
    connection.read_response()
    try:
        yield
    finally:
        connection.send_command("RPUSH", name, "token")
        connection.read_response()
        client.connection_pool.release(connection)


@contextmanager
def python_redis_lock(client: redis.Redis, name: str) -> Iterator[None]:
    """Waits by BLPOP for at most its ttl; asked until it has the lock."""
    lock = redis_lock.Lock(client, name, expire=TTL)
    while not lock.acquire(timeout=TTL):
        pass
    try:
        yield
    finally:
        lock.release()


#: redis-py's ask again every 100 ms by default.
THREADS: dict[str, Callable[[redis.Redis, str], AbstractContextManager[Any]]] = {
    "floor": floor,
    "RedisLock": lambda client, name: RedisLock(client, name, ttl=TTL).hold(wait=WAIT),
    "redis-py Lock": lambda client, name: redis.lock.Lock(
        client, name, timeout=TTL, blocking_timeout=WAIT
    ),
    "python-redis-lock": python_redis_lock,
}
TASKS: dict[str, Callable[[Any, str], AbstractAsyncContextManager[Any]]] = {
    "AsyncRedisLock": lambda client, name: AsyncRedisLock(client, name, ttl=TTL).hold(wait=WAIT),
    "redis-py asyncio": lambda client, name: redis.asyncio.lock.Lock(
        client, name, timeout=TTL, blocking_timeout=WAIT
    ),
}
#: The lock for threads that excludes one for tasks.
EXCLUDES = {"AsyncRedisLock": "RedisLock", "redis-py asyncio": "redis-py Lock"}
