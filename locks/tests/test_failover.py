"""Failovers that keep their clients connected, as FAILOVER and REPLICAOF behind a name do.

A proxy stands for the name: open connections stay where they are, new ones go to the new master.
"""

import time
from collections.abc import Iterator
from concurrent.futures import TimeoutError as NotYet
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.sentinel

from servers.sentinels import MASTER, Sentinels

from .. import LockBackendError, RedisLock, Release
from ..testing.server import LoopbackProxy, Server, eventually, free_port
from .contract.doors import Door, open_server_door, yield_and_close
from .stress import find_overlaps, list_holds, read_history, start
from .waiting import run_in_thread, start_waiter


class Pair:
    """A master, its replica, and a proxy as the name of the master."""

    def __init__(self) -> None:
        self.master = Server()
        self.replica = Server("--replicaof", f"127.0.0.1 {self.master.port}")
        self.name = LoopbackProxy(self.master.port)
        eventually(lambda: self._status() == "up")

    def _status(self) -> str:
        return str(self.replica.client().info("replication")["master_link_status"])

    def client(self) -> redis.Redis:
        return self.master.client(port=self.name.port)

    def fail_over(self) -> None:
        """Exchange master and replica without losing a write."""
        run: Any = self.master.client().execute_command
        run("FAILOVER")
        eventually(lambda: _role(self.replica) == "master")
        eventually(lambda: _role(self.master) == "slave")
        self.name.lead_to(self.replica.port)

    def swap(self) -> None:
        """Exchange the attributes after a failover, to prepare the next one."""
        self.master, self.replica = self.replica, self.master
        eventually(lambda: self._status() == "up")

    def stop(self) -> None:
        self.name.stop()
        self.replica.stop()
        self.master.stop()


def _role(server: Server) -> str:
    """Return the server's role, or an empty string while the role changes."""
    try:
        return str(server.client().info("replication")["role"])
    except redis.ConnectionError:
        return ""


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.stop()


@pytest.fixture(params=["threads", "asyncio"])
def door(request: pytest.FixtureRequest, pair: Pair) -> Iterator[Door]:
    """A door over the name."""
    yield from yield_and_close(open_server_door(request.param, pair.name.port))


def test_waiter_at_a_demoted_master_does_not_trust_its_wake_up(
    pair: Pair,
) -> None:
    """The new master's PUBLISH is replicated to the waiter at the demoted one."""
    lock = RedisLock(pair.client(), "sold once", ttl=30)
    holder = lock.acquire(5)
    waiter = start_waiter(lock)
    pair.fail_over()
    replica_lock = RedisLock(pair.replica.client(), "sold once", ttl=30)
    assert replica_lock._release(holder) is Release.RELEASED
    third = replica_lock.acquire(5)
    with pytest.raises(NotYet):
        waiter.result(0.5)
    third.check()
    assert third.release() is Release.RELEASED


def test_demoted_master_is_left_after_its_first_refusal(pair: Pair, door: Door) -> None:
    lock = door.lock("left", ttl=10)
    with lock.hold(wait=1):  # several connections become idle
        for inspecting_thread in [run_in_thread(lambda: lock.inspect()) for _ in range(4)]:
            inspecting_thread.result(5)
    pair.fail_over()
    with pytest.raises(LockBackendError, match="read only"):
        lock.acquire(10)
    for _ in range(5):
        lock.acquire(10).release()
    assert pair.replica.client().exists("lock:{left}:fence")


def test_waiters_move_to_the_new_master_after_a_refusal(pair: Pair, door: Door) -> None:
    holder = RedisLock(pair.master.client(), "followed", ttl=30).acquire(5)
    waiter = start_waiter(door.lock("followed", ttl=30))
    pair.fail_over()
    with pytest.raises(LockBackendError, match="read only"):
        door.lock("other", ttl=30).acquire(10)  # any refused command of this process
    replica_lock = RedisLock(pair.replica.client(), "followed", ttl=30)
    eventually(lambda: pair.replica.client().pubsub_channels("lock:wake:*"))
    eventually(lambda: len(replica_lock.inspect().waiters) == 1)
    assert replica_lock._release(holder) is Release.RELEASED
    assert waiter.result(2).release() is Release.RELEASED


@pytest.mark.usefixtures("_frequent_probes")
def test_idle_waiter_follows_a_failover_without_an_error(pair: Pair, door: Door) -> None:
    """No command of this process is refused. The subscription itself is verified."""
    holder = RedisLock(pair.master.client(), "looked after", ttl=60).acquire(5)
    waiter = start_waiter(door.lock("looked after", ttl=60))
    channel = _read_waiters_channel(pair.master)
    pair.fail_over()
    replica_lock = RedisLock(pair.replica.client(), "looked after", ttl=60)
    eventually(lambda: _read_waiters_channel(pair.replica) not in (b"", channel))
    new_channel = _read_waiters_channel(pair.replica)
    eventually(lambda: new_channel in pair.replica.client().pubsub_channels("lock:wake:*"))
    assert replica_lock._release(holder) is Release.RELEASED
    assert waiter.result(2).release() is Release.RELEASED


def _read_waiters_channel(server: Server) -> bytes:
    waiters: Any = server.client().hvals("lock:{looked after}:waiting")
    return bytes(waiters[0].split()[0]) if waiters else b""


def test_waiting_at_a_replica_is_refused(pair: Pair, door: Door) -> None:
    """The new master would find no subscriber to wake, and the waiter would sleep for a ttl."""
    lock = door.lock("waits elsewhere", ttl=60)
    with lock.hold(wait=1):
        pair.name.lead_to(pair.replica.port)  # for new connections
        with pytest.raises(LockBackendError, match="replica"):
            lock.acquire(5)
        pair.name.lead_to(pair.master.port)
        waiter = start_waiter(lock)
    assert waiter.result(2).release() is Release.RELEASED


@pytest.mark.usefixtures("_frequent_probes")
def test_silent_subscription_at_a_master_is_kept(pair: Pair) -> None:
    lock = RedisLock(pair.client(), "undisturbed", ttl=60)
    with lock.hold(wait=1):
        waiter = start_waiter(lock)
        channel = lock._wakeups.waiters.channel
        roles = _count_calls(pair.master, "role")
        eventually(lambda: _count_calls(pair.master, "role") > roles + 1)
        assert lock._wakeups.waiters.channel == channel
        pair.name.lead_to(free_port())  # new connections fail: the probe itself must decide
        pings = _count_calls(pair.master, "ping")
        eventually(lambda: _count_calls(pair.master, "ping") > pings + 1)
        assert lock._wakeups.waiters.channel == channel
    assert waiter.result(2).release() is Release.RELEASED


def _count_calls(server: Server, command: str) -> int:
    commandstats = server.client().info("commandstats")
    return int(commandstats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def test_holder_and_waiters_follow_a_sentinel_failover(pair: Pair, tmp_path: Path) -> None:
    log = (tmp_path / "log").open("wb")
    sentinels = Sentinels(tmp_path, pair.master.port, log)
    try:
        sentinels.start()
        sentinels.wait_until_ready()
        sentinel_addresses = [("127.0.0.1", port) for port in sentinels.ports]
        sentinel = redis.sentinel.Sentinel(sentinel_addresses, socket_timeout=2)
        client: redis.Redis = sentinel.master_for(MASTER)
        lock = RedisLock(client, "followed by all", ttl=30)
        holder = lock.acquire(5)
        waiter = start_waiter(lock)
        eventually(partial(_request_failover, sentinels.ports[0]), within=20)
        observer = RedisLock(pair.replica.client(), "followed by all", ttl=30)
        eventually(lambda: _role(pair.replica) == "master")
        # A subscription is verified after PROBE_SECONDS, 5 s, of silence.
        eventually(lambda: len(observer.inspect().waiters) == 1, within=20)
        eventually(lambda: pair.replica.client().pubsub_channels("lock:wake:*"), within=20)
        assert observer.inspect().owner == holder.token
        while holder.release() is Release.UNKNOWN:  # while the old master cuts its connections
            pass
        next_lease = waiter.result(10)
        assert (next_lease.fence or 0) > (holder.fence or 0)
        assert observer.inspect().owner == next_lease.token
        assert next_lease.release() is Release.RELEASED
        client.close()
    finally:
        sentinels.stop()
        log.close()


def _request_failover(port: int) -> bool:
    """Ask this Sentinel for a failover. It refuses until it knows enough about the replica."""
    with redis.Redis(port=port) as sentinel:
        try:
            return bool(sentinel.execute_command("SENTINEL", "FAILOVER", MASTER))
        except redis.ResponseError:
            return False


def test_failovers_allow_no_second_holder(pair: Pair, tmp_path: Path) -> None:
    """FAILOVER waits for the replica, so that no write is lost. Clients stay connected."""
    history = tmp_path / "history.jsonl"
    workers = [start("threads", pair.name.port, 0.6, 60, history) for _ in range(4)]
    try:
        eventually(history.exists, within=30)
        for _ in range(8):
            time.sleep(0.5)  # meanwhile the workers take and release the lock
            pair.fail_over()
            pair.swap()
        for worker_process in workers:
            worker_process.terminate()
        for worker_process in workers:
            worker_process.join(30)
            assert worker_process.exitcode == 0
    finally:
        for worker_process in workers:
            worker_process.kill()
            worker_process.join(10)
    events = read_history(history)
    assert find_overlaps(events) == []
    assert len(list_holds(events)) > 8
