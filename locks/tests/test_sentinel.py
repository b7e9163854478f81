"""Tests of locks whose client finds the master by Redis Sentinel.

For each new connection the client's pool asks the Sentinels which server is the master.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from servers.sentinels import MASTER, Sentinels

from .. import AsyncRedisLock, RedisLock
from ..aio.sentinel_pool import SentinelPool
from ..testing.server import Server, eventually
from .waiting import hold_lock, start_waiter


class FakeSentinels:
    """A replacement for redis-py's Sentinel. It reports the server `master` as the master."""

    def __init__(self, master: Server) -> None:
        self.master = master

    def discover_master(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", self.master.port


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """Two masters. The fake Sentinels report the first one until a test replaces it."""
    old_master, new_master = Server(), Server()
    yield old_master, new_master
    old_master.stop()
    new_master.stop()


@pytest.fixture
def sentinels(servers: tuple[Server, Server]) -> FakeSentinels:
    return FakeSentinels(servers[0])


@pytest.fixture
def client(sentinels: FakeSentinels) -> Iterator[redis.Redis]:
    """A client whose pool asks the fake Sentinels for the master."""
    pool_manager: Any = sentinels
    pool = SentinelConnectionPool(
        "any", pool_manager, retry=Retry(NoBackoff(), 0), socket_timeout=2
    )
    with redis.Redis.from_pool(pool) as client:
        yield client


def look_up_master(client: redis.Redis) -> None:
    """Let the client's pool ask the Sentinels for the master, as for a new connection."""
    pool: Any = client.connection_pool
    pool.get_master_address()


def test_replaced_master_gets_no_command_although_it_replies(
    client: redis.Redis, servers: tuple[Server, Server], sentinels: FakeSentinels
) -> None:
    """The Sentinels report a new master. The locks use it, although the old one still replies.

    A master that is cut off from its Sentinels remains a master, and would still grant locks.
    """
    old_master, new_master = servers
    RedisLock(client, "first", ttl=10).acquire(1).release()  # connects to the old master
    sentinels.master = new_master
    look_up_master(client)  # now the pool knows that the open connection leads elsewhere
    with hold_lock(RedisLock(client, "replaced", ttl=10)):
        assert new_master.make_client().keys("*replaced*") != []
        assert old_master.make_client().keys("*replaced*") == []


def test_lease_of_a_replaced_master_is_lost_at_its_next_renewal(
    client: redis.Redis, servers: tuple[Server, Server], sentinels: FakeSentinels
) -> None:
    """The Sentinels report a new master. The next renewal goes there, and finds no lock."""
    lease = RedisLock(client, "renewed", ttl=0.6).acquire(1)
    first_deadline = lease.deadline
    # Wait for the first renewal, for which the watchdog connects to the old master.
    eventually(lambda: lease.deadline > first_deadline)
    sentinels.master = servers[1]
    look_up_master(client)
    assert lease.lost_event.wait(5)
    lease.release()


@pytest.mark.usefixtures("_frequent_probes")
def test_waiters_listen_to_the_new_master(
    client: redis.Redis, servers: tuple[Server, Server], sentinels: FakeSentinels
) -> None:
    """The Sentinels report a new master, while the subscription at the old master is still open.

    A probe, which checks whether a silent subscription is still at the master, notices that. Then
    the waiters subscribe at the new master.
    """
    lock = RedisLock(client, "followed", ttl=30)
    with hold_lock(lock):
        waiter = start_waiter(lock)
        old_channel = lock._wakeups.waiters.channel
    waiter.result(5).release()
    sentinels.master = servers[1]
    look_up_master(client)
    eventually(
        lambda: (
            not lock._wakeups.waiters.is_listening or lock._wakeups.waiters.channel != old_channel
        )
    )
    with hold_lock(lock) as lease:
        waiter = start_waiter(lock)
        lease.release()
        waiter.result(5).release()
    assert servers[1].make_client().pubsub_numsub(lock._wakeups.waiters.channel)[0][1] == 1


@pytest.fixture
def running_sentinels(servers: tuple[Server, Server], tmp_path: Path) -> Iterator[Sentinels]:
    """Sentinels that watch the old master."""
    with (tmp_path / "sentinels.log").open("wb") as log:
        sentinels = Sentinels(tmp_path, servers[0].port, log)

        def do_sentinels_report_master() -> bool:
            with suppress(LookupError):
                return sentinels.find_master() == ("127.0.0.1", servers[0].port)
            return False

        sentinels.start()
        try:
            eventually(do_sentinels_report_master, within=20)
            yield sentinels
        finally:
            sentinels.stop()


def test_async_lock_serves_one_loop_after_another(running_sentinels: Sentinels) -> None:
    """An AsyncRedisLock works in four event loops in succession.

    The client's own connections to the Sentinels belong to the first loop. So in each loop the lock
    uses other connections to the Sentinels.
    """
    addresses = [("127.0.0.1", port) for port in running_sentinels.ports]
    client = redis.asyncio.sentinel.Sentinel(addresses, socket_timeout=5).master_for(MASTER)
    lock = AsyncRedisLock(client, "four loops", ttl=10)

    async def hold() -> None:
        async with lock.hold(wait=5):
            assert await lock.locked()

    for _ in range(4):
        asyncio.run(hold())
        gc.collect()  # an open connection would cause a ResourceWarning, which fails the test


class FakeAsyncSentinels(FakeSentinels):
    """A replacement for redis-py's asyncio Sentinel."""

    def __init__(self, master: Server) -> None:
        super().__init__(master)
        self.sentinels: list[Any] = []

    async def discover_master(self, name: str) -> tuple[str, int]:  # type: ignore[override]
        return "127.0.0.1", self.master.port


def test_async_lock_follows_its_client_to_a_new_master(
    servers: tuple[Server, Server],
) -> None:
    """The locks have a separate pool, a SentinelPool, in place of the client's pool.

    When the client's pool has found a new master, the locks connect to that master, too.
    """
    old_master, new_master = servers

    async def main() -> None:
        sentinels: Any = FakeAsyncSentinels(old_master)
        pool = redis.asyncio.sentinel.SentinelConnectionPool("any", sentinels)
        client = redis.asyncio.Redis(connection_pool=pool)
        lock = AsyncRedisLock(client, "replaced", ttl=10)
        async with lock.hold(wait=1):
            connection: Any = (await lock._get_resources()).connections.current_connection
        sentinel_pool = connection._link._connection.connection_pool  # the pool of the locks
        assert isinstance(sentinel_pool, SentinelPool)
        assert not connection.has_master_moved()
        await pool.get_master_address()  # the client finds the same master as before
        assert not connection.has_master_moved()
        sentinel_pool._manager.master = new_master
        sentinels.master = new_master
        await pool.get_master_address()
        assert connection.has_master_moved()
        async with lock.hold(wait=1):
            assert new_master.make_client().keys("*replaced*") != []
            resources: Any = await lock._get_resources()
            assert not resources.connections.current_connection.has_master_moved()
        await client.aclose()

    asyncio.run(main())
