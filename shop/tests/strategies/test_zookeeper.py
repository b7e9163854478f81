"""The strategy `zookeeper` on a real server: the queue of nodes, and sessions that end.

Each buyer creates a node in ZooKeeper. The buyer with the lowest node holds the lock; every other
buyer watches the node before its own. If a client's session ends, ZooKeeper deletes its nodes.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from pytest_django import Settings

from locks import LockBackendError, LockLost, Release
from servers.loopback import find_free_port
from servers.zookeeper import ZooKeeper
from shop.sale import points
from shop.strategies import zookeeper
from shop.strategies.zookeeper import ZookeeperLock, connect
from shop.tests.purchases import (
    LOCK_SERVER_ERROR,
    assert_retry_later,
    buy,
    committed,
    count_orders_and_stock,
    eventually,
    open_sale,
)

SESSION_TIMEOUT_SECONDS = 1.0


def open_session(server: ZooKeeper) -> Iterator[Any]:
    """Yield a client with a new session on the server, and close it afterwards."""
    client = connect(server.hosts, ttl=SESSION_TIMEOUT_SECONDS)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def other_client(zookeeper_server: ZooKeeper) -> Iterator[Any]:
    """A client with a second session, like that of another process."""
    yield from open_session(zookeeper_server)


@pytest.fixture
def client(zookeeper_server: ZooKeeper) -> Iterator[Any]:
    """The client whose session holds the locks of the fixture `lock`."""
    yield from open_session(zookeeper_server)


@pytest.fixture
def lock(client: Any, request: pytest.FixtureRequest) -> ZookeeperLock:
    return ZookeeperLock(client, request.node.name, ttl=SESSION_TIMEOUT_SECONDS)


def read_queue(lock: ZookeeperLock) -> list[str]:
    """Return the names of the ZooKeeper nodes of the holder and of all waiters, in any order."""
    return lock._list_nodes(SESSION_TIMEOUT_SECONDS)


def get_sequence_number(node: str) -> str:
    """Return the ten digits that ZooKeeper has appended to the name of a node."""
    return node[-10:]


def test_buyers_get_the_lock_in_order(lock: ZookeeperLock) -> None:
    """Four buyers queue one after another, and each watches only the one before it."""
    buyers_in_order: list[int] = []

    def buy(number: int) -> None:
        with lock.hold(10):
            buyers_in_order.append(number)

    with ThreadPoolExecutor(4) as buyers:
        with lock.hold(1):
            purchases = []
            for number in range(4):
                purchases.append(buyers.submit(buy, number))
                eventually(
                    lambda: len(read_queue(lock)) == len(purchases) + 1, what="the buyer waits"
                )
            # No node is after the last one, so no waiter watches it.
            *watched_nodes, _ = sorted(read_queue(lock), key=get_sequence_number)

            def count_watchers() -> list[int]:
                watchers = lock.client._data_watchers
                return [len(watchers.get(f"{lock.path}/{node}", ())) for node in watched_nodes]

            eventually(
                lambda: count_watchers() == [1] * 4, what="every waiter watches its predecessor"
            )
        for purchase in purchases:
            purchase.result(timeout=10)
    assert buyers_in_order == [0, 1, 2, 3]
    assert read_queue(lock) == []


def test_waiter_gets_a_lock_released_just_before_its_watch(lock: ZookeeperLock) -> None:
    """The holder's node is deleted after the waiter saw it, and before the waiter watches it.

    No event will tell the waiter about the deletion, so it must not wait for an event.
    """
    lease = lock.acquire(1)

    def release(point: str, fields: Mapping[str, object]) -> None:
        assert point == "zookeeper:before_watch"
        lease.release()

    with points.use_probe(release):
        assert lock.acquire(5).waited_seconds < 5


def end_session(client: Any) -> None:
    """End the client's session on the server, as the session's timeout does."""
    from kazoo.client import KazooClient

    # A second client takes the session over, and closes it.
    hosts = ",".join(f"{host}:{port}" for host, port in client.hosts)
    same_session_client = KazooClient(hosts=hosts, client_id=client.client_id)
    same_session_client.start()
    same_session_client.stop()
    same_session_client.close()


def test_end_of_the_session_notifies_the_holder(lock: ZookeeperLock) -> None:
    """The lease of a holder whose session has ended is lost: check() raises.

    The client opens a new session, in which it can acquire the lock again.
    """
    lease = lock.acquire(1)
    lease.check()
    end_session(lock.client)
    assert lease.lost_event.wait(10)
    with pytest.raises(LockLost):
        lease.check()
    eventually(lambda: lock.client.connected, what="the client has connected again")
    assert lease.release() is Release.EXPIRED
    assert lock.acquire(5).release() is Release.RELEASED


def test_end_of_the_session_notifies_the_waiter(lock: ZookeeperLock, other_client: Any) -> None:
    """A waiter whose session has ended gets an error instead of the lock.

    ZooKeeper has deleted the waiter's node with the session.
    """
    waiter = ZookeeperLock(other_client, lock.name, ttl=SESSION_TIMEOUT_SECONDS)
    with lock.hold(1), ThreadPoolExecutor(1) as pool:
        acquisition = pool.submit(waiter.acquire, 20)
        eventually(lambda: len(read_queue(lock)) == 2, what="the waiter queues")
        end_session(other_client)
        with pytest.raises(LockBackendError):
            acquisition.result(timeout=10)
        eventually(lambda: len(read_queue(lock)) == 1, what="the waiter has left")


def test_acquire_fails_while_the_server_does_not_answer(zookeeper_server: ZooKeeper) -> None:
    """While the server is stopped, acquire() raises, and release() of an earlier lease is UNKNOWN.

    As soon as the server answers again, the client deletes the nodes of both calls.
    """
    process = zookeeper_server._process.process
    assert process is not None
    client = connect(zookeeper_server.hosts, ttl=3.0)
    try:
        lock = ZookeeperLock(client, "silent", ttl=0.3)
        lease = lock.acquire(1)
        session = client.client_id
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(LockBackendError):
            lock.acquire(0.1)
        assert lease.release() is Release.UNKNOWN
        process.send_signal(signal.SIGCONT)
        eventually(lambda: read_queue(lock) == [], what="both nodes are deleted")
        assert lock.acquire(1)
        assert client.client_id == session  # otherwise the nodes would have ended with the session
    finally:
        process.send_signal(signal.SIGCONT)
        client.stop()
        client.close()


@committed
@pytest.mark.parametrize("is_other_buyer_connecting", [False, True])
def test_missing_zookeeper_is_unavailable(
    is_other_buyer_connecting: bool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A buyer is refused if the server does not answer, or if another buyer is still connecting.

    If 200 buyers tried to connect one after another, each for CONNECT_TIMEOUT_SECONDS (5 s), the
    last buyer would wait for a quarter of an hour.
    """
    open_sale(1)
    settings.ZOOKEEPER_HOSTS = f"127.0.0.1:{find_free_port()}"
    monkeypatch.setattr(zookeeper, "CONNECT_TIMEOUT_SECONDS", 0.1)
    # Earlier tests may have cached a connection, which this test must not use.
    monkeypatch.setattr(zookeeper, "_connect_once", zookeeper._connect_once.__wrapped__)
    with zookeeper._connect_mutex if is_other_buyer_connecting else nullcontext():
        reply = buy(lock="zookeeper")
    message = (
        "ZooKeeper does not answer; nothing was sold: retry with the same key"
        if is_other_buyer_connecting
        else LOCK_SERVER_ERROR
    )
    assert_retry_later(reply, "unavailable", message)
    assert count_orders_and_stock() == (0, 1)
