"""Tests of leases and of lock.inspect(), and of invalid arguments of a lock."""

import asyncio
import math
import threading
import time
from typing import Any

import pytest
import redis
import redis.asyncio

from .. import (
    AsyncRedisLock,
    Lease,
    LockLost,
    LockNotHeld,
    LockTimeout,
    LossReason,
    Metrics,
    RedisLock,
    Release,
    one_file,
)
from ..clock import now
from ..testing.server import Server, eventually
from .waiting import StartWorker, hold_lock, run_in_thread, start_waiter, wait_until_queued


def test_inspect_shows_owner_time_left_and_waiters(client: redis.Redis, lock: RedisLock) -> None:
    """The lock's ttl is 30 s. The waiters are listed by their tokens, in their order."""
    assert lock.inspect().owner is None
    with hold_lock(lock) as lease:
        first_waiter, second_waiter = start_waiter(lock), start_waiter(lock)
        inspection = lock.inspect()
        assert (inspection.owner, inspection.fence) == (lease.token, lease.fence)
        assert 29 < inspection.left <= 30
    assert first_waiter.result(5).token == inspection.waiters[0]
    first_waiter.result().release()
    assert second_waiter.result(5).token == inspection.waiters[1]
    second_waiter.result().release()
    assert not client.exists("lock:{tested}:places")


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, 0.0004])
def test_invalid_ttl_is_refused(client: redis.Redis, ttl: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        RedisLock(client, "x", ttl=ttl)


def test_invalid_arguments_are_refused(server: Server, client: redis.Redis) -> None:
    """RedisLock and AsyncRedisLock refuse invalid names, times and clients."""
    with pytest.raises(ValueError, match="must not be empty"):
        RedisLock(client, "", ttl=1)
    with pytest.raises(ValueError, match="at least the ttl"):
        RedisLock(client, "x", ttl=10, max_hold=5)
    for wait in (-1, math.nan):
        with pytest.raises(ValueError, match="must be"):
            RedisLock(client, "x", ttl=1).acquire(wait)
    unsuitable_client: Any
    for unsuitable_client in (redis.asyncio.Redis(port=server.port), object(), "redis://localhost"):
        with pytest.raises(TypeError, match=r"RedisLock needs a redis\.Redis"):
            RedisLock(unsuitable_client, "x", ttl=1)
    for unsuitable_client in (client, object()):
        with pytest.raises(TypeError, match=r"AsyncRedisLock needs a redis\.asyncio\.Redis"):
            AsyncRedisLock(unsuitable_client, "x", ttl=1)
    with pytest.raises(ValueError, match="ttl"):
        AsyncRedisLock(redis.asyncio.Redis(), "x", ttl=0)


@pytest.mark.parametrize("name", [5, b"x"])
def test_invalid_name_is_refused(client: redis.Redis, name: Any) -> None:
    with pytest.raises(TypeError, match="name must be a string"):
        RedisLock(client, name, ttl=1)


def test_two_concurrent_releases_are_measured_once(client: redis.Redis) -> None:
    """Two threads release a lease. One of them gets LockNotHeld, and the metrics get one call."""
    outcomes: list[Release] = []

    class RecordingMetrics(Metrics):
        def held(self, name: str, seconds: float, outcome: Release) -> None:
            outcomes.append(outcome)

    lock = RedisLock(client, "released twice", ttl=10, metrics=RecordingMetrics())
    for _ in range(50):
        lease = lock.acquire(5)
        barrier = threading.Barrier(2)

        def release(lease: Lease = lease, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(5)
            lease.release()

        errors = [
            future.exception(5) for future in (run_in_thread(release), run_in_thread(release))
        ]
        assert sorted(type(error).__name__ for error in errors) == ["LockNotHeld", "NoneType"]
        assert lease.outcome is Release.RELEASED
    assert outcomes == [Release.RELEASED] * 50


def test_lease_that_is_being_released_is_not_held() -> None:
    """While a release has no reply, check() raises: another holder may have the lock."""
    release_began = threading.Event()
    reply_arrived = threading.Event()

    def release_slowly(_: Lease) -> Release:
        release_began.set()
        assert reply_arrived.wait(5)
        return Release.RELEASED

    lease = Lease(name="x", token="token", deadline=now() + 30, release=release_slowly)
    lease.check()
    outcome = run_in_thread(lease.release)
    assert release_began.wait(5)
    assert lease.remaining() == 0.0
    with pytest.raises(LockNotHeld, match="released"):
        lease.check()
    reply_arrived.set()
    assert outcome.result(5) is Release.RELEASED


class ListOfLosses(list[LossReason], Metrics):
    """A metrics object that is a list of the losses. It is falsy while it is empty."""

    def lost(self, name: str, reason: LossReason) -> None:
        self.append(reason)


def test_falsy_metrics_count_a_loss(client: redis.Redis) -> None:
    """A loss is reported to a metrics object that is falsy."""
    losses = ListOfLosses()
    lease = RedisLock(client, "falsy", ttl=10, metrics=losses).acquire(1)
    lease.mark_lost(LossReason.EXPIRED)
    eventually(lambda: losses == [LossReason.EXPIRED])
    lease.release()


def test_falsy_metrics_count_a_loss_in_an_event_loop(server: Server) -> None:
    """A loss is reported to a metrics object that is falsy."""
    losses = ListOfLosses()

    async def main() -> None:
        async with redis.asyncio.Redis(port=server.port) as async_client:
            lock = AsyncRedisLock(async_client, "falsy", ttl=10, metrics=losses)
            lease = await lock.acquire(1)
            lease.mark_lost(LossReason.EXPIRED)
            await lease.release()

    asyncio.run(main())
    assert losses == [LossReason.EXPIRED]


def test_wall_clock_of_the_client_may_jump(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """time.time() jumps back to 1970, and ahead to 2096. A lease uses a monotonic clock."""
    with hold_lock(lock) as lease:
        waiter = start_waiter(lock)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        lease.check()
        assert 29 < lease.remaining() < 30
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert 29 < waiter.result(5).remaining() < 30
    waiter.result().release()


def test_paused_holder_notices_that_its_lease_ended(
    lock: RedisLock, start_worker: StartWorker
) -> None:
    """A holder is paused until its lease expires and another holder has the lock."""
    holder = start_worker()
    stale_lease = holder.run("acquire", name=lock.name, ttl=0.3, wait=1)
    holder.pause()
    with hold_lock(lock) as lease:
        assert lease.fence is not None
        assert lease.fence > stale_lease["fence"]
        holder.resume()
        assert holder.run("check") == "LockLost"
        assert holder.run("release") == "expired"
        assert lock.inspect().owner == lease.token


def test_paused_waiter_does_not_trust_an_expired_grant(
    lock: RedisLock, start_worker: StartWorker
) -> None:
    """The lock is given to a paused waiter, and its lease expires. Then the waiter resumes.

    It must not trust the wake-up, but wait until the next holder releases the lock.
    """
    waiting_worker = start_worker()
    with hold_lock(lock):
        waiting_worker.send("acquire", name=lock.name, ttl=0.3, wait=30)
        wait_until_queued(lock, 1)
        waiting_worker.pause()
    waiter_token = lock.inspect().owner
    assert waiter_token is not None
    with hold_lock(lock) as lease:  # acquired when the lease of the paused waiter has expired
        waiting_worker.resume()
        # The waiter has polled, and is queued again.
        eventually(lambda: lock.inspect().waiters == (waiter_token,))
        assert lock.inspect().owner == lease.token
    waiter_lease = waiting_worker.read_reply()
    assert waiter_lease["fence"] > (lease.fence or 0)
    assert waiting_worker.run("release") == "released"


def test_renewed_or_extended_lease_keeps_its_fence_known(client: redis.Redis) -> None:
    """The server forgets a fence `fence_ttl` seconds after the end of the lease, not earlier.

    Here the last fence is an hour ahead of the server's clock, as after a failover. If the server
    forgot it, the next fence would be the time of the clock, and lower.
    """
    lock = RedisLock(client, "long held", ttl=0.3, fence_ttl=0.3)
    last_fence = int((time.time() + 3600) * 1e6)  # microseconds
    client.set("lock:{long held}:fence", last_fence)
    with lock.hold(wait=1) as lease:
        assert lease.fence == last_fence + 1
        assert not lease.lost_event.wait(1.0)  # longer than ttl + fence_ttl
        lease.extend(1.0)
        assert client.pttl("lock:{long held}:fence") > 1000
    with lock.hold(wait=1) as lease:
        assert lease.fence == last_fence + 2


def test_errors_derive_from_those_of_one_file_lock() -> None:
    """The same except clause catches the errors of RedisLock and OneFileLock."""
    assert issubclass(LockTimeout, one_file.LockTimeout)
    assert issubclass(LockLost, one_file.LockLost)
