"""The ZooKeeper lock on a real server: the queue, sessions that end, and holders that die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from locks import Lease, LockBackendError, LockLost, LockTimeout, Release
from servers.zookeeper import ZooKeeper
from shop.sale import points
from shop.strategies.zookeeper import ZookeeperLock, connect
from shop.tests.till import eventually

#: The session timeout of the tests' clients, seconds.
SESSION = 1.0


def client_of(server: ZooKeeper) -> Iterator[Any]:
    client = connect(server.hosts, ttl=SESSION)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def other(zookeeper_server: ZooKeeper) -> Iterator[Any]:
    """Another process's client."""
    yield from client_of(zookeeper_server)


@pytest.fixture
def client(zookeeper_server: ZooKeeper) -> Iterator[Any]:
    yield from client_of(zookeeper_server)


@pytest.fixture
def lock(client: Any, request: pytest.FixtureRequest) -> ZookeeperLock:
    return ZookeeperLock(client, request.node.name, ttl=SESSION)


def queue(lock: ZookeeperLock) -> list[str]:
    return lock._children(SESSION)


def test_the_lock_is_given_in_the_order_of_asking_and_each_waits_for_the_one_before(
    lock: ZookeeperLock,
) -> None:
    served: list[int] = []

    def buy(number: int) -> None:
        with lock.hold(10):
            served.append(number)

    with ThreadPoolExecutor(4) as buyers:
        with lock.hold(1):
            waiting = []
            for number in range(4):
                waiting.append(buyers.submit(buy, number))
                eventually(lambda: len(queue(lock)) == len(waiting) + 1, what="so it is")
            watched = [
                f"{lock.path}/{node}"
                for node in sorted(queue(lock), key=lambda node: node[-10:])[:-1]
            ]
            eventually(lambda: set(lock.client._data_watchers) >= set(watched), what="so it is")
            assert all(len(lock.client._data_watchers[node]) == 1 for node in watched)
        for bought in waiting:
            bought.result(timeout=10)
    assert served == [0, 1, 2, 3]
    assert queue(lock) == []


def test_who_gives_up_leaves_the_queue(lock: ZookeeperLock) -> None:
    with lock.hold(1):
        with pytest.raises(LockTimeout):
            lock.acquire(0.1)
        assert lock.try_acquire() is None
        assert len(queue(lock)) == 1


def test_a_predecessor_that_goes_before_it_is_watched_is_not_waited_for(
    lock: ZookeeperLock,
) -> None:
    lease = lock.acquire(1)

    def release(name: str, facts: Mapping[str, object]) -> None:
        assert name == "zookeeper:before_watch"
        lease.release()

    with points.installed(release):
        assert lock.acquire(5).waited_seconds < 5


def end_session(client: Any) -> None:
    """As if the server had received nothing from the client for the session timeout."""
    from kazoo.client import KazooClient

    twin = KazooClient(
        hosts=",".join(f"{h}:{p}" for h, p in client.hosts), client_id=client.client_id
    )
    twin.start()
    twin.stop()
    twin.close()


def test_a_holder_whose_session_ends_is_notified(lock: ZookeeperLock) -> None:
    lease = lock.acquire(1)
    lease.check()
    end_session(lock.client)
    assert lease.lost_event.wait(10)
    with pytest.raises(LockLost):
        lease.check()
    eventually(lambda: lock.client.connected, what="so it is")
    assert lease.release() is Release.EXPIRED
    assert lock.acquire(5).release() is Release.RELEASED


def test_a_waiter_whose_session_ends_is_notified_and_does_not_hold(
    lock: ZookeeperLock, other: Any
) -> None:
    waiter = ZookeeperLock(other, lock.name, ttl=SESSION)
    with lock.hold(1), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.acquire, 20)
        eventually(lambda: len(queue(lock)) == 2, what="so it is")
        end_session(other)
        with pytest.raises(LockBackendError):
            waiting.result(timeout=10)
        eventually(lambda: len(queue(lock)) == 1, what="so it is")


@pytest.mark.usefixtures("zookeeper_server")  # skips or fails where there is none
def test_while_the_server_is_away_nothing_is_trusted_and_a_withdrawal_is_made_up_for(
    tmp_path: Path,
) -> None:
    client = None
    log = (tmp_path / "log").open("wb")
    server = ZooKeeper(tmp_path, log=log)
    try:
        pid = server.start()
        server.wait_until_ready()
        client = connect(server.hosts, ttl=3.0)
        lock = ZookeeperLock(client, "apple", ttl=0.3)
        lease = lock.acquire(1)
        session = client.client_id
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(LockBackendError):
            lock.acquire(0.1)
        assert lease.release() is Release.UNKNOWN
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: queue(lock) == [], what="so it is")
        taken: Lease = lock.acquire(1)
        assert client.client_id == session  # else it was the session's end that took the nodes
        server.stop()
        eventually(lambda: taken.remaining() == 0.0, what="so it is")
        started = time.monotonic()
        with pytest.raises(LockBackendError):
            lock.acquire(5)
        assert time.monotonic() - started < 5
    finally:
        if client is not None:
            client.stop()
            client.close()
        server.stop()
        log.close()
