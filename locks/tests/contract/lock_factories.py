"""Lock factories, so that one test can run with each kind of lock and each kind of client.

A test gets a factory, and makes its locks with it. The locks of all factories have the same
blocking interface: an AsyncRedisLock runs in an event loop in another thread, and each call of the
test waits for that loop.
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

    Attributes:
        client: The client of the locks.
        admin_client: A blocking client with which a test reads and changes the keys of the locks.
    """

    def __init__(self, admin_client: Any, client: Any) -> None:
        self.admin_client = admin_client
        self.client = client

    def make_lock(self, name: str, **options: Any) -> AnyLock:
        """Return a lock that uses the client. Its ttl is 10 s unless `options` has a ttl."""
        return RedisLock(self.client, name, **{"ttl": 10, **options})

    def list_node_admins(self) -> list[redis.Redis]:
        """Return a blocking client for each node of the cluster, or for the single server."""
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
    """Yield the factory, and close it after the test. A fixture calls this function."""
    yield factory
    factory.close()


class AsyncLockFactory(LockFactory):
    """Makes AsyncRedisLocks that use one client, and runs them in an event loop in a thread.

    Attributes:
        loop: The event loop.
    """

    def __init__(self, admin_client: Any, client: Any) -> None:
        super().__init__(admin_client, client)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        """Run the event loop until close(). The thread executes this method."""
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._wait_and_close_client())

    async def _wait_and_close_client(self) -> None:
        """Wait until close() sets the event `_closed`. Then close the client, and end the loop."""
        self._closed = asyncio.Event()
        await self._closed.wait()
        await self.client.aclose()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine in the loop, and return its result. Fail after 60 s."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def make_lock(self, name: str, **options: Any) -> AnyLock:
        return BlockingProxy(self, AsyncRedisLock(self.client, name, **{"ttl": 10, **options}))

    def close(self) -> None:
        # _closed may not exist yet. The lambda reads it in the loop, which has created it by then.
        self.loop.call_soon_threadsafe(lambda: self._closed.set())
        self._thread.join(10)
        # The loop has ended. Forget the connections and tasks that the locks of this client shared
        # in it: this registry would keep them as long as the client exists.
        client_resources._resources_by_client.pop(
            getattr(self.client, "connection_pool", self.client), None
        )
        self.admin_client.close()


class BlockingProxy:
    """A lock or a lease of asyncio with blocking methods.

    Each method runs in the factory's event loop, and its caller waits for the result.

    Attributes:
        async_object: The AsyncRedisLock or AsyncLease.
    """

    def __init__(self, factory: AsyncLockFactory, async_object: Any) -> None:
        self._factory = factory
        self.async_object = async_object

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the lock or lease. A method is made to block: see the class."""
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
        """Hold the lock in a `with` block, while the loop holds it in an `async with` block."""
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
        options: Options of the locks' client.
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
        options: Options of the locks' client.
    """
    host = "127.0.0.1"
    admin_client = redis.RedisCluster(host=host, port=port)
    if lock_kind == "cluster, asyncio":
        client = redis.asyncio.RedisCluster(host=host, port=port, **options)
        return AsyncLockFactory(admin_client, client)
    return LockFactory(admin_client, redis.RedisCluster(host=host, port=port, **options))
