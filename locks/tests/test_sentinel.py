"""Locks through Sentinels. After a failover the next connection asks for the master again."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from .. import RedisLock
from ..testing.server import Server, eventually
from .waiting import held, start_waiter


class FakeSentinels:
    """A replacement for redis-py's Sentinel that names `master` as the master."""

    def __init__(self, master: Server) -> None:
        self.master = master

    def discover_master(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", self.master.port


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """The old master and the new one."""
    old_master, new_master = Server(), Server()
    yield old_master, new_master
    old_master.stop()
    new_master.stop()


@pytest.fixture
def sentinels(servers: tuple[Server, Server]) -> FakeSentinels:
    return FakeSentinels(servers[0])


@pytest.fixture
def client(sentinels: FakeSentinels) -> Iterator[redis.Redis]:
    pool_manager: Any = sentinels
    pool = SentinelConnectionPool(
        "any", pool_manager, retry=Retry(NoBackoff(), 0), socket_timeout=2
    )
    with redis.Redis.from_pool(pool) as client:
        yield client


def look_up(client: redis.Redis) -> None:
    """Have the pool ask the Sentinels for the master, as a new connection does."""
    pool: Any = client.connection_pool
    pool.get_master_address()


def test_replaced_master_is_left_although_it_answers(
    client: redis.Redis, servers: tuple[Server, Server], sentinels: FakeSentinels
) -> None:
    """A master that is cut off from its Sentinels stays a master and goes on granting locks."""
    old_master, new_master = servers
    RedisLock(client, "split", ttl=10).acquire(1).release()  # connects to the old master
    sentinels.master = new_master
    look_up(client)  # the open connection can be compared with the new address from now on
    with held(RedisLock(client, "split brain", ttl=10)):
        assert new_master.client().keys("*split brain*") != []
        assert old_master.client().keys("*split brain*") == []


def test_lease_of_a_replaced_master_is_lost_at_its_next_renewal(
    client: redis.Redis, servers: tuple[Server, Server], sentinels: FakeSentinels
) -> None:
    lease = RedisLock(client, "renewed", ttl=0.6).acquire(1)
    first_deadline = lease.deadline
    # From the first renewal on the watchdog has a connection to the old master.
    eventually(lambda: lease.deadline > first_deadline)
    sentinels.master = servers[1]
    look_up(client)
    assert lease.lost_event.wait(5)
    lease.release()


@pytest.mark.usefixtures("_frequent_probes")
def test_waiters_listen_to_the_new_master(
    client: redis.Redis, servers: tuple[Server, Server], sentinels: FakeSentinels
) -> None:
    """The waiters' subscription to the old master stays open and silent."""
    lock = RedisLock(client, "followed", ttl=30)
    with held(lock):
        waiter = start_waiter(lock)
        old_channel = lock._wakeups.waiters.channel
    waiter.result(5).release()
    sentinels.master = servers[1]
    look_up(client)
    eventually(
        lambda: not lock._wakeups.waiters.listening or lock._wakeups.waiters.channel != old_channel
    )
    with held(lock) as lease:
        waiter = start_waiter(lock)
        lease.release()
        waiter.result(5).release()
    assert servers[1].client().pubsub_numsub(lock._wakeups.waiters.channel)[0][1] == 1
