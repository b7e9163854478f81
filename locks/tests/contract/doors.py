"""The doors: each kind of client, and the lock for it, behind one blocking interface.

The locks for asyncio run in a loop in its own thread; what a test calls is a call into it.
"""

import asyncio
import inspect
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import redis
import redis.asyncio

from ... import AsyncLease, AsyncRedisLock, RedisLock
from ...aio import client_resources

#: RedisLock and its lease, or those of asyncio made blocking.
AnyLock: TypeAlias = Any
AnyLease: TypeAlias = Any


class Door:
    """RedisLock by a kind of client.

    admin  a blocking client of the same data, to look and to interfere
    """

    def __init__(self, admin: Any, client: Any) -> None:
        self.admin = admin
        self.client = client

    def lock(self, name: str, **options: Any) -> AnyLock:
        return RedisLock(self.client, name, **{"ttl": 10, **options})

    def cut_subscriptions(self) -> None:
        """CLIENT KILL TYPE pubsub, on every node."""
        for node in getattr(self.admin, "get_nodes", lambda: [None])():
            client = self.admin if node is None else self.admin.get_redis_connection(node)
            client.client_kill_filter(_type="pubsub")

    def close(self) -> None:
        """Close the clients, and what the locks left open."""
        self.client.close()
        self.admin.close()


def opened(door: Door) -> Iterator[Door]:
    """Yield the door for a fixture, and close it in the end."""
    yield door
    door.close()


class AsyncDoor(Door):
    """AsyncRedisLock by a kind of client."""

    def __init__(self, admin: Any, client: Any) -> None:
        super().__init__(admin, client)
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
        return Blocking(self, AsyncRedisLock(self.client, name, **{"ttl": 10, **options}))

    def close(self) -> None:
        self.loop.call_soon_threadsafe(lambda: self._closed.set())
        self._thread.join(10)
        client_resources._shared.pop(getattr(self.client, "connection_pool", self.client), None)
        self.admin.close()


class Blocking:
    """A lock or a lease of asyncio: its methods are called in the loop, and waited for."""

    def __init__(self, door: AsyncDoor, awaited: Any) -> None:
        self._door = door
        self.awaited = awaited

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.awaited, name)
        if not inspect.ismethod(attribute):
            return attribute

        async def work(*args: Any, **options: Any) -> Any:
            result = attribute(*args, **options)
            return await result if inspect.isawaitable(result) else result

        def call(*args: Any, **options: Any) -> Any:
            result = self._door.do(work(*args, **options))
            return Blocking(self._door, result) if isinstance(result, AsyncLease) else result

        return call

    @contextmanager
    def hold(self, wait: float | None) -> Iterator[AnyLease]:
        hold = self.awaited.hold(wait)
        lease = self._door.do(hold.__aenter__())
        try:
            yield Blocking(self._door, lease)
        except BaseException as error:
            self._door.do(hold.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            self._door.do(hold.__aexit__(None, None, None))


def single(port: int, **options: Any) -> dict[str, Any]:
    """The doors to one server, by their names: a function that opens each. `options` are of the
    locks' client."""
    at: dict[str, Any] = {"port": port, **options}
    return {
        "threads": lambda: Door(redis.Redis(port=port), redis.Redis(**at)),
        "asyncio": lambda: AsyncDoor(redis.Redis(port=port), redis.asyncio.Redis(**at)),
    }


def clustered(port: int, **options: Any) -> dict[str, Any]:
    """The doors to the cluster that has a node on this port."""
    at: dict[str, Any] = {"host": "127.0.0.1", "port": port}
    return {
        "cluster": lambda: Door(redis.RedisCluster(**at), redis.RedisCluster(**at, **options)),
        "cluster, asyncio": lambda: AsyncDoor(
            redis.RedisCluster(**at), redis.asyncio.RedisCluster(**at, **options)
        ),
    }
