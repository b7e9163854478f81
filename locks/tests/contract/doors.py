"""The doors: each kind of client and its lock behind the same blocking interface.

The locks for asyncio run in a loop in a separate thread, which executes the tests' calls.
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
    """RedisLock with a kind of client.

    admin: A blocking client of the same data, with which the test looks and interferes.
    """

    def __init__(self, admin: Any, client: Any) -> None:
        self.admin = admin
        self.client = client

    def lock(self, name: str, **options: Any) -> AnyLock:
        return RedisLock(self.client, name, **{"ttl": 10, **options})

    def cut_subscriptions(self) -> None:
        """Run CLIENT KILL TYPE pubsub on every node."""
        for node in getattr(self.admin, "get_nodes", lambda: [None])():
            client = self.admin if node is None else self.admin.get_redis_connection(node)
            client.client_kill_filter(_type="pubsub")

    def close(self) -> None:
        """Close the clients and the connections of the locks."""
        self.client.close()
        self.admin.close()


def yield_and_close(door: Door) -> Iterator[Door]:
    """Yield the door of a fixture, and close it after the test."""
    yield door
    door.close()


class AsyncDoor(Door):
    """AsyncRedisLock with a kind of client, called in a loop in another thread."""

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

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def lock(self, name: str, **options: Any) -> AnyLock:
        return BlockingProxy(self, AsyncRedisLock(self.client, name, **{"ttl": 10, **options}))

    def close(self) -> None:
        self.loop.call_soon_threadsafe(lambda: self._closed.set())
        self._thread.join(10)
        client_resources._shared.pop(getattr(self.client, "connection_pool", self.client), None)
        self.admin.close()


class BlockingProxy:
    """A lock or a lease of asyncio whose methods run in the door's loop and block."""

    def __init__(self, door: AsyncDoor, awaited: Any) -> None:
        self._door = door
        self.awaited = awaited

    def __getattr__(self, name: str) -> Any:
        """Return an attribute, or in place of a method a function that waits for its result."""
        attribute = getattr(self.awaited, name)
        if not inspect.ismethod(attribute):
            return attribute

        async def work(*args: Any, **options: Any) -> Any:
            result = attribute(*args, **options)
            return await result if inspect.isawaitable(result) else result

        def call(*args: Any, **options: Any) -> Any:
            result = self._door.call(work(*args, **options))
            return BlockingProxy(self._door, result) if isinstance(result, AsyncLease) else result

        return call

    @contextmanager
    def hold(self, wait: float | None) -> Iterator[AnyLease]:
        hold = self.awaited.hold(wait)
        lease = self._door.call(hold.__aenter__())
        try:
            yield BlockingProxy(self._door, lease)
        except BaseException as error:
            self._door.call(hold.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            self._door.call(hold.__aexit__(None, None, None))


def make_server_doors(port: int, **options: Any) -> dict[str, Any]:
    """Return functions that open the doors to a server, by name.

    `options` are for the client of the locks.
    """
    address: dict[str, Any] = {"port": port, **options}
    return {
        "threads": lambda: Door(redis.Redis(port=port), redis.Redis(**address)),
        "asyncio": lambda: AsyncDoor(redis.Redis(port=port), redis.asyncio.Redis(**address)),
    }


def make_cluster_doors(port: int, **options: Any) -> dict[str, Any]:
    """Return functions that open the doors to the cluster with a node on this port, by name."""
    address: dict[str, Any] = {"host": "127.0.0.1", "port": port}
    return {
        "cluster": lambda: Door(
            redis.RedisCluster(**address), redis.RedisCluster(**address, **options)
        ),
        "cluster, asyncio": lambda: AsyncDoor(
            redis.RedisCluster(**address), redis.asyncio.RedisCluster(**address, **options)
        ),
    }
