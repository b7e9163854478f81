"""A failover that keeps its clients connected: FAILOVER or REPLICAOF behind a name.

The proxy is the name: connections that are open stay where they are, new ones go to the new master.
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
from .contract.doors import Door, make_server_doors, yield_and_close
from .stress import find_overlaps, list_holds, read_history, start
from .waiting import run_in_thread, start_waiter


class Pair:
    """A master, its replica, and a name that leads to the master."""

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
        """Master and replica change places; nothing that was written is lost."""
        run: Any = self.master.client().execute_command
        run("FAILOVER")
        eventually(lambda: _role(self.replica) == "master")
        eventually(lambda: _role(self.master) == "slave")
        self.name.lead_to(self.replica.port)

    def swap(self) -> None:
        """After a failover, to be ready for the next one."""
        self.master, self.replica = self.replica, self.master
        eventually(lambda: self._status() == "up")

    def stop(self) -> None:
        self.name.stop()
        self.replica.stop()
        self.master.stop()


def _role(server: Server) -> str:
    """Return the server's role; empty while it cuts its connections because its role changes."""
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
    """Over the name."""
    yield from yield_and_close(make_server_doors(pair.name.port)[request.param]())


def test_waiter_at_a_demoted_master_does_not_trust_its_wake_up(
    pair: Pair,
) -> None:
    """PUBLISH on the new master has no receiver there, and is replicated to the waiter."""
    lock = RedisLock(pair.client(), "sold once", ttl=30)
    holder = lock.acquire(5)
    other = start_waiter(lock)
    pair.fail_over()
    replica_lock = RedisLock(pair.replica.client(), "sold once", ttl=30)
    assert replica_lock._release(holder) is Release.RELEASED
    third = replica_lock.acquire(5)
    with pytest.raises(NotYet):
        other.result(0.5)
    third.check()
    assert third.release() is Release.RELEASED


def test_demoted_master_is_left_after_its_first_refusal(pair: Pair, door: Door) -> None:
    lock = door.lock("left", ttl=10)
    with lock.hold(wait=1):  # so that several connections are idle
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
    other = start_waiter(door.lock("followed", ttl=30))
    pair.fail_over()
    with pytest.raises(LockBackendError, match="read only"):
        door.lock("other", ttl=30).acquire(10)  # any command of this process
    replica_lock = RedisLock(pair.replica.client(), "followed", ttl=30)
    eventually(lambda: pair.replica.client().pubsub_channels("lock:wake:*"))
    eventually(lambda: len(replica_lock.inspect().waiters) == 1)
    assert replica_lock._release(holder) is Release.RELEASED
    assert other.result(2).release() is Release.RELEASED


@pytest.mark.usefixtures("_probed_at_once")
def test_idle_waiter_follows_a_failover_without_an_error(pair: Pair, door: Door) -> None:
    """No command of this process is refused: the subscription itself is verified."""
    holder = RedisLock(pair.master.client(), "looked after", ttl=60).acquire(5)
    other = start_waiter(door.lock("looked after", ttl=60))
    channel = _channel_of_the_waiter(pair.master)
    pair.fail_over()
    replica_lock = RedisLock(pair.replica.client(), "looked after", ttl=60)
    eventually(lambda: _channel_of_the_waiter(pair.replica) not in (b"", channel))
    now = _channel_of_the_waiter(pair.replica)
    eventually(lambda: now in pair.replica.client().pubsub_channels("lock:wake:*"))
    assert replica_lock._release(holder) is Release.RELEASED
    assert other.result(2).release() is Release.RELEASED


def _channel_of_the_waiter(server: Server) -> bytes:
    waiters: Any = server.client().hvals("lock:{looked after}:waiting")
    return bytes(waiters[0].split()[0]) if waiters else b""


def test_waiting_at_a_replica_is_refused(pair: Pair, door: Door) -> None:
    """The new master would find no subscriber to wake, and the waiter would sleep for a ttl."""
    lock = door.lock("waits elsewhere", ttl=60)
    with lock.hold(wait=1):
        pair.name.lead_to(pair.replica.port)  # for connections from now on
        with pytest.raises(LockBackendError, match="replica"):
            lock.acquire(5)
        pair.name.lead_to(pair.master.port)
        other = start_waiter(lock)
    assert other.result(2).release() is Release.RELEASED


@pytest.mark.usefixtures("_probed_at_once")
def test_silent_subscription_at_a_master_is_kept(pair: Pair) -> None:
    lock = RedisLock(pair.client(), "undisturbed", ttl=60)
    with lock.hold(wait=1):
        other = start_waiter(lock)
        channel = lock._wakeups.waiters.channel
        roles = _calls(pair.master, "role")
        eventually(lambda: _calls(pair.master, "role") > roles + 1)
        assert lock._wakeups.waiters.channel == channel
        pair.name.lead_to(free_port())  # no server to ask: the probe itself must decide
        pings = _calls(pair.master, "ping")
        eventually(lambda: _calls(pair.master, "ping") > pings + 1)
        assert lock._wakeups.waiters.channel == channel
    assert other.result(2).release() is Release.RELEASED


def _calls(server: Server, command: str) -> int:
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
        other = start_waiter(lock)
        eventually(partial(_fails_over, sentinels.ports[0]), within=20)
        look = RedisLock(pair.replica.client(), "followed by all", ttl=30)
        eventually(lambda: _role(pair.replica) == "master")
        # An untouched subscription is looked after when it was silent for PROBE_SECONDS, 5 seconds.
        eventually(lambda: len(look.inspect().waiters) == 1, within=20)
        eventually(lambda: pair.replica.client().pubsub_channels("lock:wake:*"), within=20)
        assert look.inspect().owner == holder.token
        while holder.release() is Release.UNKNOWN:  # the old master's connections are being cut
            pass
        mine = other.result(10)
        assert (mine.fence or 0) > (holder.fence or 0)
        assert look.inspect().owner == mine.token
        assert mine.release() is Release.RELEASED
        client.close()
    finally:
        sentinels.stop()
        log.close()


def _fails_over(port: int) -> bool:
    """Asks this Sentinel for it; refused until the replica has said enough about itself."""
    with redis.Redis(port=port) as sentinel:
        try:
            return bool(sentinel.execute_command("SENTINEL", "FAILOVER", MASTER))
        except redis.ResponseError:
            return False


def test_failovers_allow_no_second_holder(pair: Pair, tmp_path: Path) -> None:
    """FAILOVER waits for the replica: no write is lost, so there is no excuse."""
    history = tmp_path / "history.jsonl"
    workers = [start("threads", pair.name.port, 0.6, 60, history) for _ in range(4)]
    try:
        eventually(history.exists, within=30)
        for _ in range(8):
            time.sleep(0.5)  # so long they take and release the lock
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
