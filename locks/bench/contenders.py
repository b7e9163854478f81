"""The locks that are compared, each as a context manager that is made anew for every acquisition.

`floor` is what no lock on one Redis can undercut when nobody waits: SET NX PX and one
compare-and-delete script, by the same client. It cannot wait; where there are waiters, relay.py is
the floor.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock
import redis_lock  # type: ignore[import-untyped]  # python-redis-lock

from .. import AsyncRedisLock, RedisLock

WAIT = 60.0
#: The articles' own release: delete the key if it is still ours.
COMPARE_AND_DELETE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0
"""
Hold = Callable[[redis.Redis, str, int], AbstractContextManager[Any]]
AsyncHold = Callable[[Any, str, int], AbstractAsyncContextManager[Any]]


@contextmanager
def floor(client: redis.Redis, name: str, ttl: int) -> Iterator[None]:
    token = secrets.token_hex(16)
    if not client.set(name, token, nx=True, px=ttl * 1000):
        raise RuntimeError(f"{name} is taken, and the floor cannot wait")
    try:
        yield
    finally:
        client.eval(COMPARE_AND_DELETE, 1, name, token)


def ours(client: redis.Redis, name: str, ttl: int) -> AbstractContextManager[Any]:
    return RedisLock(client, name, ttl=ttl).hold(wait=WAIT)


def redis_py(client: redis.Redis, name: str, ttl: int) -> AbstractContextManager[Any]:
    """Its defaults: asks again every 100 ms."""
    return redis.lock.Lock(client, name, timeout=ttl, blocking_timeout=WAIT)


@contextmanager
def python_redis_lock(client: redis.Redis, name: str, ttl: int) -> Iterator[None]:
    """Waits by BLPOP for at most its ttl; asked until it has the lock."""
    lock = redis_lock.Lock(client, name, expire=ttl)
    while not lock.acquire(timeout=ttl):
        pass
    try:
        yield
    finally:
        lock.release()


UNCONTENDED: dict[str, Hold] = {
    "floor": floor,
    "RedisLock": ours,
    "redis-py Lock": redis_py,
    "python-redis-lock": python_redis_lock,
}
WAITING: dict[str, Hold] = {name: hold for name, hold in UNCONTENDED.items() if hold is not floor}


def ours_async(client: Any, name: str, ttl: int) -> AbstractAsyncContextManager[Any]:
    return AsyncRedisLock(client, name, ttl=ttl).hold(wait=WAIT)


def redis_py_async(client: Any, name: str, ttl: int) -> AbstractAsyncContextManager[Any]:
    """Its defaults: asks again every 100 ms."""
    return redis.asyncio.lock.Lock(client, name, timeout=ttl, blocking_timeout=WAIT)


AWAITED: dict[str, AsyncHold] = {
    "AsyncRedisLock": ours_async,
    "redis-py asyncio": redis_py_async,
}
#: The blocking lock that excludes one for asyncio.
BLOCKING = {"AsyncRedisLock": "RedisLock", "redis-py asyncio": "redis-py Lock"}
