"""Factories, with which one test tests each kind of lock with each kind of client.

The locks of all factories have the same blocking interface. The locks for asyncio run in an event
loop in another thread, which executes the calls of the tests.
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

#: A RedisLock and its lease, or an AsyncRedisLock and its lease behind a BlockingProxy.
AnyLock: TypeAlias = Any
AnyLease: TypeAlias = Any


class LockFactory:
    """Makes RedisLocks that use one client.

    client: The client of the locks.
    admin_client: A blocking client, with which the test reads and changes the data of the locks.
    """

    def __init__(self, admin_client: Any, client: Any) -> None:
        self.admin_client = admin_client
        self.client = client

    def make_lock(self, name: str, **options: Any) -> AnyLock:
        """Return a lock that uses the client. Its ttl is 10 s unless `options` has a ttl."""
        return RedisLock(self.client, name, **{"ttl": 10, **options})

    def list_node_admins(self) -> list[redis.Redis]:
        """Return a list of blocking clients: one for each node, or only that of a single server."""
        if not isinstance(self.admin_client, redis.RedisCluster):
            return [self.admin_client]
        return [
            self.admin_client.get_redis_connection(node) for node in self.admin_client.get_nodes()
        ]

    def cut_subscriptions(self) -> None:
        """Close all connections with a subscription, on every node."""
        for node_admin in self.list_node_admins():
            node_admin.client_kill_filter(_type="pubsub")

    def close(self) -> None:
        """Close both clients, and with them the connections of the locks."""
        self.client.close()
        self.admin_client.close()


def yield_and_close(factory: LockFactory) -> Iterator[LockFactory]:
    """Yield the factory to the test, and close it after the test, for use in a fixture."""
    yield factory
    factory.close()


class AsyncLockFactory(LockFactory):
    """Makes AsyncRedisLocks that use one client, and runs them in an event loop in a thread."""

    def __init__(self, admin_client: Any, client: Any) -> None:
        super().__init__(admin_client, client)
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
        # A lambda looks up the event in the loop, after the loop has created it.
        self.loop.call_soon_threadsafe(lambda: self._closed.set())
        self._thread.join(10)
        # The connections and tasks that the locks of this client shared would stay in this
        # registry as long as the client exists, although their loop has ended.
        client_resources._resources_by_client.pop(
            getattr(self.client, "connection_pool", self.client), None
        )
        self.admin_client.close()


class BlockingProxy:
    """Wraps a lock or a lease of asyncio. Its methods run in the factory's loop, and block."""

    def __init__(self, factory: AsyncLockFactory, async_object: Any) -> None:
        self._factory = factory
        self.async_object = async_object

    def __getattr__(self, name: str) -> Any:
        """Return an attribute, or instead of a method a function that waits for its result."""
        attribute = getattr(self.async_object, name)
        if not inspect.ismethod(attribute):
            return attribute

        async def call_in_loop(*args: Any, **options: Any) -> Any:
            result = attribute(*args, **options)
            return await result if inspect.isawaitable(result) else result

        def call_and_wait(*args: Any, **options: Any) -> Any:
            result = self._factory.call(call_in_loop(*args, **options))
            if isinstance(result, AsyncLease):
                return BlockingProxy(self._factory, result)
            return result

        return call_and_wait

    @contextmanager
    def hold(self, wait: float | None) -> Iterator[AnyLease]:
        """Hold the lock in a `with` block, by the `async with` block of the asynchronous lock."""
        async_block = self.async_object.hold(wait)
        lease = self._factory.call(async_block.__aenter__())
        try:
            yield BlockingProxy(self._factory, lease)
        except BaseException as error:
            self._factory.call(async_block.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            self._factory.call(async_block.__aexit__(None, None, None))


def make_server_factory(lock_kind: str, port: int, **options: Any) -> LockFactory:
    """Return a factory of locks on a single server.

    Args:
        lock_kind: "asyncio" for AsyncRedisLocks, or "threads" for RedisLocks.
        port: The port of the server.
        options: For the client of the locks.
    """
    admin_client = redis.Redis(port=port)
    if lock_kind == "asyncio":
        return AsyncLockFactory(admin_client, redis.asyncio.Redis(port=port, **options))
    return LockFactory(admin_client, redis.Redis(port=port, **options))


def make_cluster_factory(lock_kind: str, port: int, **options: Any) -> LockFactory:
    """Return a factory of locks on a cluster.

    Args:
        lock_kind: "cluster, asyncio" for AsyncRedisLocks, or "cluster" for RedisLocks.
        port: The port of any node of the cluster.
        options: For the client of the locks.
    """
    host = "127.0.0.1"
    admin_client = redis.RedisCluster(host=host, port=port)
    if lock_kind == "cluster, asyncio":
        client = redis.asyncio.RedisCluster(host=host, port=port, **options)
        return AsyncLockFactory(admin_client, client)
    return LockFactory(admin_client, redis.RedisCluster(host=host, port=port, **options))
