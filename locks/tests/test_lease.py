"""A lease: its use, its state, its fence, and invalid arguments."""

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


def test_two_releases_at_once_count_once(client: redis.Redis) -> None:
    """The second release raises LockNotHeld."""
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
    """The server may have executed the release, and granted the lock to another holder."""
    release_began = threading.Event()
    reply_arrived = threading.Event()

    def release(_: Lease) -> Release:
        release_began.set()
        assert reply_arrived.wait(5)
        return Release.RELEASED

    lease = Lease(name="x", token="token", deadline=now() + 30, release=release)
    lease.check()
    outcome = run_in_thread(lease.release)
    assert release_began.wait(5)
    assert lease.remaining() == 0.0
    with pytest.raises(LockNotHeld, match="released"):
        lease.check()
    reply_arrived.set()
    assert outcome.result(5) is Release.RELEASED


class ListOfLosses(list[LossReason], Metrics):
    """Metrics that are falsy until they have counted a loss."""

    def lost(self, name: str, reason: LossReason) -> None:
        self.append(reason)


def test_falsy_metrics_count_a_loss(client: redis.Redis) -> None:
    """The metrics object is an empty list at first, which is falsy."""
    losses = ListOfLosses()
    lease = RedisLock(client, "falsy", ttl=10, metrics=losses).acquire(1)
    lease.mark_lost(LossReason.EXPIRED)
    eventually(lambda: losses == [LossReason.EXPIRED])
    lease.release()


def test_falsy_metrics_count_a_loss_in_an_event_loop(server: Server) -> None:
    """The metrics object is an empty list at first, which is falsy."""
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
    """The lease uses the monotonic clock, so jumps of time.time() do not change it."""
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
    """Another holder has the lock when the paused one resumes."""
    holder = start_worker()
    stale_lease = holder.run("acquire", name="tested", ttl=0.3, wait=1)
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
    """The lock is granted to a paused waiter, and that lease ends before it resumes."""
    sleeper = start_worker()
    with hold_lock(lock):
        sleeper.send("acquire", name="tested", ttl=0.3, wait=30)
        wait_until_queued(lock, 1)
        sleeper.pause()
    sleeper_token = lock.inspect().owner
    assert sleeper_token is not None
    with hold_lock(lock) as lease:  # after the end of the lease that the sleeper was granted
        sleeper.resume()
        # The sleeper polled, and is queued again.
        eventually(lambda: lock.inspect().waiters == (sleeper_token,))
        assert lock.inspect().owner == lease.token
    answer = sleeper.read_reply()
    assert answer["fence"] > (lease.fence or 0)
    assert sleeper.run("release") == "released"


def test_renewals_and_extensions_prolong_the_memory_of_the_fence(client: redis.Redis) -> None:
    """The server forgets a fence `fence_ttl` seconds after the end of the lease.

    The last fence is an hour ahead of the server's clock, as after a failover, so that the next
    fence would fall if the server forgot the last one.
    """
    lock = RedisLock(client, "long held", ttl=0.3, fence_ttl=0.3)
    last_fence = int((time.time() + 3600) * 1e6)  # microseconds
    client.set("lock:{long held}:fence", last_fence)
    with lock.hold(wait=1) as lease:
        assert lease.fence == last_fence + 1
        assert not lease.lost_event.wait(1.0)
        lease.extend(1.0)
        assert client.pttl("lock:{long held}:fence") > 1000
    with lock.hold(wait=1) as lease:
        assert lease.fence == last_fence + 2


def test_errors_derive_from_those_of_one_file_lock() -> None:
    """The same except clause catches the errors of RedisLock and OneFileLock."""
    assert issubclass(LockTimeout, one_file.LockTimeout)
    assert issubclass(LockLost, one_file.LockLost)
