"""The ZooKeeper lock on a real server: the queue, sessions that end, and holders that die."""

import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from pytest_django import Settings

from locks import LockBackendError, LockLost, Release
from servers.loopback import free_port
from servers.zookeeper import ZooKeeper
from shop.sale import points
from shop.strategies import zookeeper
from shop.strategies.zookeeper import ZookeeperLock, connect
from shop.tests.purchases import (
    SERVER_IS_DOWN,
    assert_retry_later,
    buy,
    committed,
    count_orders_and_stock,
    eventually,
    open_sale,
)

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


def place(node: str) -> str:
    """Return the position of a waiter's node, in the order of the requests."""
    return node[-10:]


def test_buyers_get_the_lock_in_order(
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
            watchers = lock.client._data_watchers
            watched = [f"{lock.path}/{node}" for node in sorted(queue(lock), key=place)[:-1]]

            def counts() -> list[int]:
                return [len(watchers.get(node, ())) for node in watched]

            eventually(lambda: counts() == [1] * 4, what="each watches the one before")
        for bought in waiting:
            bought.result(timeout=10)
    assert served == [0, 1, 2, 3]
    assert queue(lock) == []


def test_predecessor_gone_before_the_watch_is_not_waited_for(
    lock: ZookeeperLock,
) -> None:
    lease = lock.acquire(1)

    def release(name: str, facts: Mapping[str, object]) -> None:
        assert name == "zookeeper:before_watch"
        lease.release()

    with points.installed(release):
        assert lock.acquire(5).waited_seconds < 5


def end_session(client: Any) -> None:
    """End a client's session, as if the server had received nothing for the session timeout."""
    from kazoo.client import KazooClient

    twin = KazooClient(
        hosts=",".join(f"{h}:{p}" for h, p in client.hosts), client_id=client.client_id
    )
    twin.start()
    twin.stop()
    twin.close()


def test_holder_whose_session_ends_is_notified(lock: ZookeeperLock) -> None:
    lease = lock.acquire(1)
    lease.check()
    end_session(lock.client)
    assert lease.lost_event.wait(10)
    with pytest.raises(LockLost):
        lease.check()
    eventually(lambda: lock.client.connected, what="so it is")
    assert lease.release() is Release.EXPIRED
    assert lock.acquire(5).release() is Release.RELEASED


def test_waiter_whose_session_ends_is_notified_and_does_not_hold(
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


def test_silent_server_gives_no_lock(
    zookeeper_server: ZooKeeper,
) -> None:
    process = zookeeper_server._process.process
    assert process is not None
    client = connect(zookeeper_server.hosts, ttl=3.0)
    try:
        lock = ZookeeperLock(client, "silent", ttl=0.3)
        lease, session = lock.acquire(1), client.client_id
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(LockBackendError):
            lock.acquire(0.1)
        assert lease.release() is Release.UNKNOWN
        process.send_signal(signal.SIGCONT)
        eventually(lambda: queue(lock) == [], what="both are withdrawn")
        assert lock.acquire(1)
        assert client.client_id == session  # else it was the session's end that took the nodes
    finally:
        process.send_signal(signal.SIGCONT)
        client.stop()
        client.close()


@committed
@pytest.mark.parametrize("another_is_at_it", [False, True])
def test_missing_zookeeper_is_unavailable(
    another_is_at_it: bool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If each of 200 buyers tried to connect in turn, the last answer would come after a quarter of
    an hour."""
    open_sale(1)
    settings.ZOOKEEPER_HOSTS = f"127.0.0.1:{free_port()}"
    monkeypatch.setattr(zookeeper, "CONNECT_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(zookeeper, "_connected", zookeeper._connected.__wrapped__)
    with zookeeper._connecting if another_is_at_it else nullcontext():
        answer = buy(lock="zookeeper")
    message = (
        "ZooKeeper does not answer; nothing was sold: retry with the same key"
        if another_is_at_it
        else SERVER_IS_DOWN
    )
    assert_retry_later(answer, "unavailable", message)
    assert count_orders_and_stock() == (0, 1)
