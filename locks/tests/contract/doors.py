"""The doors: each kind of client, and the lock for it, behind one blocking interface.

The locks for asyncio run in a loop in a thread of its own; what a test calls is a call into it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import redis
import redis.asyncio

from ... import AsyncLease, AsyncRedisLock, Inspection, LossReason, RedisLock, Release
from ...aio import shared


class AnyLease(Protocol):
    """Lease, or AsyncLease made blocking."""

    @property
    def token(self) -> str: ...
    @property
    def fence(self) -> int | None: ...
    @property
    def loss(self) -> LossReason | None: ...
    @property
    def lost(self) -> bool: ...
    @property
    def outcome(self) -> Release | None: ...
    @property
    def waited_seconds(self) -> float: ...
    @property
    def deadline(self) -> float: ...
    def remaining(self) -> float: ...
    def check(self) -> None: ...
    def release(self) -> Release: ...
    def extend(self, seconds: float) -> None: ...
    def owned(self) -> bool: ...
    def hand_over(self, within: float | None = None) -> str: ...


class AnyLock(Protocol):
    """RedisLock, or AsyncRedisLock made blocking."""

    def acquire(self, wait: float | None) -> AnyLease: ...
    def try_acquire(self) -> AnyLease | None: ...
    def hold(self, wait: float | None) -> AbstractContextManager[AnyLease]: ...
    def locked(self) -> bool: ...
    def inspect(self) -> Inspection: ...
    def force_release(self) -> bool: ...
    def adopt(self, handed: str) -> AnyLease: ...


class Door:
    """A kind of client.

    admin  a blocking client of the same data, to look and to interfere
    """

    def __init__(self, admin: Any) -> None:
        self.admin = admin

    def lock(self, name: str, **options: Any) -> AnyLock:
        raise NotImplementedError

    def cut_subscriptions(self) -> None:
        """CLIENT KILL TYPE pubsub, on every node."""
        for node in getattr(self.admin, "get_nodes", lambda: [None])():
            client = self.admin if node is None else self.admin.get_redis_connection(node)
            client.client_kill_filter(_type="pubsub")

    def close(self) -> None:
        """Close the client, and what its locks left open."""


class SyncDoor(Door):
    """RedisLock."""

    def __init__(self, admin: Any, client: Any) -> None:
        super().__init__(admin)
        self.client = client

    def lock(self, name: str, **options: Any) -> AnyLock:
        return RedisLock(self.client, name, **{"ttl": 10, **options})

    def close(self) -> None:
        self.client.close()


class AsyncDoor(Door):
    """AsyncRedisLock."""

    def __init__(self, admin: Any, client: Any) -> None:
        super().__init__(admin)
        self.client = client
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        self._closed = asyncio.Event()
        await self._closed.wait()
        await self.client.aclose()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def lock(self, name: str, **options: Any) -> AnyLock:
        return BlockingLock(self, AsyncRedisLock(self.client, name, **{"ttl": 10, **options}))

    def close(self) -> None:
        self.loop.call_soon_threadsafe(lambda: self._closed.set())
        self._thread.join(10)
        shared._shared.pop(getattr(self.client, "connection_pool", self.client), None)


class BlockingLock:
    def __init__(self, door: AsyncDoor, lock: AsyncRedisLock) -> None:
        self._door = door
        self._lock = lock

    def acquire(self, wait: float | None) -> AnyLease:
        return BlockingLease(self._door, self._door.do(self._lock.acquire(wait)))

    def try_acquire(self) -> AnyLease | None:
        lease = self._door.do(self._lock.try_acquire())
        return None if lease is None else BlockingLease(self._door, lease)

    @contextmanager
    def hold(self, wait: float | None) -> Iterator[AnyLease]:
        hold = self._lock.hold(wait)
        lease = self._door.do(hold.__aenter__())
        try:
            yield BlockingLease(self._door, lease)
        except BaseException as error:
            self._door.do(hold.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            self._door.do(hold.__aexit__(None, None, None))

    def locked(self) -> bool:
        return bool(self._door.do(self._lock.locked()))

    def inspect(self) -> Inspection:
        found: Inspection = self._door.do(self._lock.inspect())
        return found

    def force_release(self) -> bool:
        return bool(self._door.do(self._lock.force_release()))

    def adopt(self, handed: str) -> AnyLease:
        return BlockingLease(self._door, self._door.do(self._lock.adopt(handed)))


class BlockingLease:
    def __init__(self, door: AsyncDoor, lease: AsyncLease) -> None:
        self._door = door
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    def check(self) -> None:
        async def check() -> None:
            self._lease.check()

        self._door.do(check())

    def extend(self, seconds: float) -> None:
        self._door.do(self._lease.extend(seconds))

    def owned(self) -> bool:
        return bool(self._door.do(self._lease.owned()))

    def hand_over(self, within: float | None = None) -> str:
        return str(self._door.do(self._lease.hand_over(within)))

    def release(self) -> Release:
        outcome: Release = self._door.do(self._lease.release())
        return outcome


def single(port: int) -> dict[str, Any]:
    """The doors to one server, by their names: a function that opens each."""
    return {
        "threads": lambda: SyncDoor(redis.Redis(port=port), redis.Redis(port=port)),
        "asyncio": lambda: AsyncDoor(redis.Redis(port=port), redis.asyncio.Redis(port=port)),
    }


def clustered(port: int, **options: Any) -> dict[str, Any]:
    """The doors to the cluster that has a node on this port. `options` are of the locks' client."""
    at: dict[str, Any] = {"host": "127.0.0.1", "port": port}
    return {
        "cluster": lambda: SyncDoor(redis.RedisCluster(**at), redis.RedisCluster(**at, **options)),
        "cluster, asyncio": lambda: AsyncDoor(
            redis.RedisCluster(**at), redis.asyncio.RedisCluster(**at, **options)
        ),
    }
