"""Tests of failovers that do not close the connections of the clients.

The command FAILOVER makes the replica the master, and the old master a replica. Clients find the
master by a DNS name, in place of which these tests use a proxy. After a failover new connections
lead to the new master, and open connections stay at the demoted one.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.sentinel

from servers.sentinels import MASTER, Sentinels

from .. import LockBackendError, RedisLock, Release
from ..testing.server import LoopbackProxy, Server, eventually, find_free_port
from .contract.lock_factories import LockFactory, make_server_factory, yield_and_close
from .stress import find_violations, list_holds, read_history, start_contender
from .waiting import run_in_thread, start_waiter, wait_until_queued


class ReplicatedPair:
    """A master, its replica, and a proxy through which new connections reach the master."""

    def __init__(self) -> None:
        self.master = Server()
        self.replica = Server("--replicaof", f"127.0.0.1 {self.master.port}")
        self.proxy = LoopbackProxy(self.master.port)
        eventually(self._is_replicating)

    def _is_replicating(self) -> bool:
        replication = self.replica.make_client().info("replication")
        return bool(replication["master_link_status"] == "up")

    def make_client(self) -> redis.Redis:
        """Return a new client that connects through the proxy."""
        return self.master.make_client(port=self.proxy.port)

    def fail_over(self) -> None:
        """Swap the roles of master and replica. No write is lost, and connections stay open."""
        eventually(self._is_replicating)  # until then the master would refuse FAILOVER
        run: Any = self.master.make_client().execute_command
        run("FAILOVER")
        eventually(lambda: _read_role(self.replica) == "master")
        eventually(lambda: _read_role(self.master) == "slave")
        self.proxy.lead_to(self.replica.port)
        self.master, self.replica = self.replica, self.master

    def stop(self) -> None:
        self.proxy.stop()
        self.replica.stop()
        self.master.stop()


def _read_role(server: Server) -> str:
    """Return the server's role, or an empty string while the role changes."""
    try:
        return str(server.make_client().info("replication")["role"])
    except redis.ConnectionError:
        return ""


@pytest.fixture
def pair() -> Iterator[ReplicatedPair]:
    """A master and its replica, behind a proxy."""
    pair = ReplicatedPair()
    yield pair
    pair.stop()


@pytest.fixture(params=["threads", "asyncio"])
def factory(request: pytest.FixtureRequest, pair: ReplicatedPair) -> Iterator[LockFactory]:
    """A factory of each kind of lock. The locks reach the master through the proxy."""
    yield from yield_and_close(make_server_factory(request.param, pair.proxy.port))


def test_waiter_at_a_demoted_master_does_not_trust_its_wake_up(pair: ReplicatedPair) -> None:
    """A waiter is still subscribed at the demoted master, to which messages are replicated.

    A release at the new master must not make the waiter think that it has the lock.
    """
    lock = RedisLock(pair.make_client(), "demoted", ttl=30)
    lease = lock.acquire(5)
    waiter = start_waiter(lock)
    pair.fail_over()
    lock_at_new_master = RedisLock(pair.master.make_client(), "demoted", ttl=30)
    # Release the lock as its holder would, over a connection to the new master.
    assert lock_at_new_master._release(lease) is Release.RELEASED
    next_lease = lock_at_new_master.acquire(5)
    with pytest.raises(TimeoutError):  # the waiter still waits
        waiter.result(0.5)
    next_lease.check()
    assert next_lease.release() is Release.RELEASED


def test_demoted_master_gets_no_command_after_a_refusal(
    pair: ReplicatedPair, factory: LockFactory
) -> None:
    """The first command after the failover fails. All later ones go to the new master."""
    lock = factory.make_lock("refused", ttl=10)
    with lock.hold(wait=1):
        # Open several connections to the old master, which are then idle.
        for inspection in [run_in_thread(lambda: lock.inspect()) for _ in range(4)]:
            inspection.result(5)
    pair.fail_over()
    with pytest.raises(LockBackendError, match="read only"):
        lock.acquire(10)
    for _ in range(5):
        lease = lock.acquire(10)
        lease.release()
    last_fence = pair.master.make_client().get("lock:{refused}:fence")
    assert last_fence == str(lease.fence).encode()


def test_waiters_move_to_the_new_master_after_a_refusal(
    pair: ReplicatedPair, factory: LockFactory
) -> None:
    """The demoted master refuses a command, so the process of the waiter subscribes again."""
    lease = RedisLock(pair.master.make_client(), "followed", ttl=30).acquire(5)
    waiter = start_waiter(factory.make_lock("followed", ttl=30))
    pair.fail_over()
    with pytest.raises(LockBackendError, match="read only"):
        # Any command of this process will do, such as one of another lock.
        factory.make_lock("other", ttl=30).acquire(10)
    lock_at_new_master = RedisLock(pair.master.make_client(), "followed", ttl=30)
    eventually(lambda: pair.master.make_client().pubsub_channels("lock:wake:*"))
    wait_until_queued(lock_at_new_master, 1)
    # Release the lock as its holder would, over a connection to the new master.
    assert lock_at_new_master._release(lease) is Release.RELEASED
    assert waiter.result(2).release() is Release.RELEASED


@pytest.mark.usefixtures("_frequent_probes")
def test_idle_waiter_follows_a_failover_without_an_error(
    pair: ReplicatedPair, factory: LockFactory
) -> None:
    """The process of the waiter sends no command that the demoted master could refuse.

    It notices the failover when it probes its silent subscription: it checks whether the
    subscription is still at the master.
    """
    name = "idle"
    lease = RedisLock(pair.master.make_client(), name, ttl=60).acquire(5)
    waiter = start_waiter(factory.make_lock(name, ttl=60))
    old_channel = _read_waiters_channel(pair.master, name)
    pair.fail_over()
    lock_at_new_master = RedisLock(pair.master.make_client(), name, ttl=60)
    eventually(lambda: _read_waiters_channel(pair.master, name) not in (None, old_channel))
    new_channel = _read_waiters_channel(pair.master, name)
    eventually(lambda: new_channel in pair.master.make_client().pubsub_channels("lock:wake:*"))
    # Release the lock as its holder would, over a connection to the new master.
    assert lock_at_new_master._release(lease) is Release.RELEASED
    assert waiter.result(2).release() is Release.RELEASED


def _read_waiters_channel(server: Server, name: str) -> bytes | None:
    """Return the channel on which the lock's only waiter is woken. None: there is no waiter."""
    entries: Any = server.make_client().hvals(f"lock:{{{name}}}:waiting")
    return bytes(entries[0].split()[0]) if entries else None


def test_waiting_at_a_replica_is_refused(pair: ReplicatedPair, factory: LockFactory) -> None:
    """A lock does not wait if the connection for its subscription leads to a replica.

    The release at the master would find no subscriber, and the waiter would sleep for a ttl.
    """
    lock = factory.make_lock("waiting", ttl=60)
    with lock.hold(wait=1):
        pair.proxy.lead_to(pair.replica.port)  # for new connections
        with pytest.raises(LockBackendError, match="replica"):
            lock.acquire(5)
        pair.proxy.lead_to(pair.master.port)
        waiter = start_waiter(lock)
    assert waiter.result(2).release() is Release.RELEASED


@pytest.mark.usefixtures("_frequent_probes")
def test_probe_keeps_a_subscription_at_the_master(pair: ReplicatedPair) -> None:
    """A probe checks whether a silent subscription is still at the master.

    The process does not subscribe again if the probe finds no failover, or if the probe cannot
    connect to the server.
    """
    lock = RedisLock(pair.make_client(), "probed", ttl=60)
    with lock.hold(wait=1):
        waiter = start_waiter(lock)
        channel = lock._wakeups.waiters.channel
        role_calls = _count_calls(pair.master, "role")
        # Wait for at least two probes.
        eventually(lambda: _count_calls(pair.master, "role") > role_calls + 1)
        assert lock._wakeups.waiters.channel == channel
        # New connections fail now, so the probe learns nothing about the master.
        pair.proxy.lead_to(find_free_port())
        ping_calls = _count_calls(pair.master, "ping")
        # Wait for at least two probes.
        eventually(lambda: _count_calls(pair.master, "ping") > ping_calls + 1)
        assert lock._wakeups.waiters.channel == channel
    assert waiter.result(2).release() is Release.RELEASED


def _count_calls(server: Server, command: str) -> int:
    """Return how often the server has run the command."""
    commandstats = server.make_client().info("commandstats")
    return int(commandstats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def test_holder_and_waiters_follow_a_sentinel_failover(
    pair: ReplicatedPair, tmp_path: Path
) -> None:
    """Sentinels promote the replica. The waiter queues there, and the holder releases there."""
    log = (tmp_path / "log").open("wb")
    sentinels = Sentinels(tmp_path, pair.master.port, log)
    try:
        sentinels.start()
        sentinels.wait_until_ready()
        sentinel_addresses = [("127.0.0.1", port) for port in sentinels.ports]
        sentinel = redis.sentinel.Sentinel(sentinel_addresses, socket_timeout=2)
        client: redis.Redis = sentinel.master_for(MASTER)
        lock = RedisLock(client, "followed", ttl=30)
        lease = lock.acquire(5)
        waiter = start_waiter(lock)
        eventually(partial(_request_failover, sentinels.ports[0]), within=20)
        new_master = pair.replica
        lock_at_new_master = RedisLock(new_master.make_client(), "followed", ttl=30)
        eventually(lambda: _read_role(new_master) == "master")
        # The waiter probes its subscription after 5 s without a message (PROBE_SECONDS).
        eventually(lambda: len(lock_at_new_master.inspect().waiters) == 1, within=20)
        eventually(lambda: new_master.make_client().pubsub_channels("lock:wake:*"), within=20)
        assert lock_at_new_master.inspect().owner == lease.token
        while lease.release() is Release.UNKNOWN:
            pass  # no reply came, because the old master closed the connection
        next_lease = waiter.result(10)
        assert (next_lease.fence or 0) > (lease.fence or 0)
        assert lock_at_new_master.inspect().owner == next_lease.token
        assert next_lease.release() is Release.RELEASED
        client.close()
    finally:
        sentinels.stop()
        log.close()


def _request_failover(port: int) -> bool:
    """Ask this Sentinel for a failover, and return whether the Sentinel starts one.

    A Sentinel refuses until it knows enough about the replica.
    """
    with redis.Redis(port=port) as sentinel:
        try:
            return bool(sentinel.execute_command("SENTINEL", "FAILOVER", MASTER))
        except redis.ResponseError:
            return False


def test_failovers_allow_no_second_holder(pair: ReplicatedPair, tmp_path: Path) -> None:
    """Four processes, each with RedisLock in threads, contend for the lock during eight failovers.

    The lock never has two holders.

    FAILOVER waits until the replica has all writes, so no grant is lost.
    """
    history = tmp_path / "history.jsonl"
    workers = [
        start_contender("threads", pair.proxy.port, ttl=0.6, seconds=60, history=history)
        for _ in range(4)
    ]
    try:
        eventually(history.exists, within=30)
        for _ in range(8):
            time.sleep(0.5)  # meanwhile the workers acquire and release the lock
            pair.fail_over()
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(30)
            assert worker.exitcode == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.join(10)
    events = read_history(history)
    assert find_violations(events) == []
    assert len(list_holds(events)) > 8  # the lock was used between the failovers
