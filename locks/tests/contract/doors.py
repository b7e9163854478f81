"""The doors, through which one test tests each kind of lock with each kind of client.

A door makes locks that all have the same blocking interface. The locks for asyncio run in a loop in
a separate thread, which executes the tests' calls.
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
    """Makes RedisLocks with one client.

    client: The client of the locks.
    admin: A blocking client of the same data, with which the test looks and interferes.
    """

    def __init__(self, admin: Any, client: Any) -> None:
        self.admin = admin
        self.client = client

    def make_lock(self, name: str, **options: Any) -> AnyLock:
        """Return a lock of this client, with a ttl of 10 s unless `options` has another."""
        return RedisLock(self.client, name, **{"ttl": 10, **options})

    def list_node_admins(self) -> list[redis.Redis]:
        """Return a blocking client of each node of the cluster, or that of the single server."""
        if not isinstance(self.admin, redis.RedisCluster):
            return [self.admin]
        return [self.admin.get_redis_connection(node) for node in self.admin.get_nodes()]

    def cut_subscriptions(self) -> None:
        """Run CLIENT KILL TYPE pubsub on every node."""
        for node_admin in self.list_node_admins():
            node_admin.client_kill_filter(_type="pubsub")

    def close(self) -> None:
        """Close the clients and the connections of the locks."""
        self.client.close()
        self.admin.close()


def yield_and_close(door: Door) -> Iterator[Door]:
    """Yield the door, as a fixture does, and close it after the test."""
    yield door
    door.close()


class AsyncDoor(Door):
    """Makes AsyncRedisLocks with one client, and runs them in a loop in another thread."""

    def __init__(self, admin: Any, client: Any) -> None:
        super().__init__(admin, client)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._wait_until_closed())

    async def _wait_until_closed(self) -> None:
        self._closed = asyncio.Event()
        await self._closed.wait()
        await self.client.aclose()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine in the loop, and return its result. Fail after 60 s."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def make_lock(self, name: str, **options: Any) -> AnyLock:
        return BlockingProxy(self, AsyncRedisLock(self.client, name, **{"ttl": 10, **options}))

    def close(self) -> None:
        # In a lambda, because the loop may not have created the event yet.
        self.loop.call_soon_threadsafe(lambda: self._closed.set())
        self._thread.join(10)
        # Nothing else removes the resources of a loop that has ended while its client lives.
        client_resources._resources_by_client.pop(
            getattr(self.client, "connection_pool", self.client), None
        )
        self.admin.close()


class BlockingProxy:
    """A lock or a lease of asyncio whose methods run in the door's loop and block."""

    def __init__(self, door: AsyncDoor, async_object: Any) -> None:
        self._door = door
        self.async_object = async_object

    def __getattr__(self, name: str) -> Any:
        """Return an attribute, or in place of a method a function that waits for its result."""
        attribute = getattr(self.async_object, name)
        if not inspect.ismethod(attribute):
            return attribute

        async def call_in_loop(*args: Any, **options: Any) -> Any:
            result = attribute(*args, **options)
            return await result if inspect.isawaitable(result) else result

        def call_and_wait(*args: Any, **options: Any) -> Any:
            result = self._door.call(call_in_loop(*args, **options))
            return BlockingProxy(self._door, result) if isinstance(result, AsyncLease) else result

        return call_and_wait

    @contextmanager
    def hold(self, wait: float | None) -> Iterator[AnyLease]:
        """Hold the lock for the block, as the asynchronous context manager of hold() does."""
        hold = self.async_object.hold(wait)
        lease = self._door.call(hold.__aenter__())
        try:
            yield BlockingProxy(self._door, lease)
        except BaseException as error:
            self._door.call(hold.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            self._door.call(hold.__aexit__(None, None, None))


def open_server_door(kind: str, port: int, **options: Any) -> Door:
    """Return the door "threads" or "asyncio" to a server.

    `options` are for the client of the locks.
    """
    admin = redis.Redis(port=port)
    if kind == "asyncio":
        return AsyncDoor(admin, redis.asyncio.Redis(port=port, **options))
    return Door(admin, redis.Redis(port=port, **options))


def open_cluster_door(kind: str, port: int, **options: Any) -> Door:
    """Return the door "cluster" or "cluster, asyncio" to the cluster with a node on this port.

    `options` are for the client of the locks.
    """
    host = "127.0.0.1"
    admin = redis.RedisCluster(host=host, port=port)
    if kind == "cluster, asyncio":
        return AsyncDoor(admin, redis.asyncio.RedisCluster(host=host, port=port, **options))
    return Door(admin, redis.RedisCluster(host=host, port=port, **options))
