"""Redlock on five real servers: what a majority buys, and what it does not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from locks import LockTimeout, Release
from servers.embedded import Valkey
from shop.sale import points
from shop.strategies.redlock import RedlockLock
from shop.tests.till import eventually

TTL = 5.0


@pytest.fixture
def servers(five_valkeys: list[Valkey]) -> Iterator[list[Valkey]]:
    """Five empty ones, which the test may kill: one whose port is taken again has no data."""
    for client in clients_of(five_valkeys):
        client.flushall()
    yield five_valkeys
    for server in five_valkeys:
        start_again(server)


def kill(server: Valkey) -> None:
    server.stop(signal.SIGKILL)


def start_again(server: Valkey) -> None:
    """Empty, if it was killed."""
    with redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as client:
        try:
            client.ping()
        except redis.ConnectionError:
            server.start(server.port)


def clients_of(servers: list[Valkey]) -> list[redis.Redis]:
    return [
        redis.Redis(port=server.port, socket_timeout=2, retry=Retry(NoBackoff(), 0))
        for server in servers
    ]


@pytest.fixture
def lock(servers: list[Valkey]) -> RedlockLock:
    return RedlockLock(clients_of(servers), "apple", ttl=TTL, retry=0.02, timeout=0.5)


def votes(lock: RedlockLock, *places: int) -> list[object]:
    return [lock.clients[place].get(lock.key) for place in places or range(5)]


def test_all_are_asked_before_the_first_has_answered(servers: list[Valkey]) -> None:
    lock = RedlockLock(clients_of(servers), "apple", ttl=TTL, timeout=2.0)
    with lock.hold(1):
        pass  # connected to all
    os.kill(servers[0].pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        acquiring = pool.submit(lock.acquire, 1)
        eventually(lambda: all(votes(lock, 1, 2, 3, 4)), what="all have voted")
        assert not acquiring.done()
        os.kill(servers[0].pid, signal.SIGCONT)
        assert acquiring.result().release() is Release.RELEASED


def test_the_majority_dies_while_the_lock_is_held_and_the_release_says_unknown(
    lock: RedlockLock, servers: list[Valkey]
) -> None:
    lease = lock.acquire(1)
    for server in servers[2:]:
        kill(server)
    assert lease.release() is Release.UNKNOWN


def test_a_minority_of_votes_is_given_back_at_once(lock: RedlockLock) -> None:
    for client in lock.clients[:3]:
        client.set(lock.key, "another contender")
    with pytest.raises(LockTimeout):
        lock.acquire(0)
    assert votes(lock) == [b"another contender"] * 3 + [None] * 2


def test_a_majority_that_took_longer_than_the_ttl_is_no_lock(servers: list[Valkey]) -> None:
    lock = RedlockLock(clients_of(servers), "apple", ttl=0.3, retry=0.02, timeout=1.0)
    slow: list[object] = []

    def let_the_votes_run_out(name: str, facts: Mapping[str, object]) -> None:
        if not slow:
            slow.append(lock.clients[0].get(lock.key))
            eventually(lambda: votes(lock) == [None] * 5, what="the votes run out")

    with points.installed(let_the_votes_run_out):
        assert lock.try_acquire() is None
    assert slow != [None]  # it had the votes
    assert lock.try_acquire() is not None
