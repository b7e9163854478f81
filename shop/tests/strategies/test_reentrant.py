"""Redisson's lock: what A0 and A3 promise of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from locks import Lease, Lock, LockNotHeld, LockTimeout, Release
from shop.ops.redis import locks_client
from shop.sale import points, subscriber
from shop.sale.polling import PollingLock
from shop.strategies.reentrant import ReentrantLock
from shop.strategies.token import TokenLock
from shop.tests.till import eventually

LONG = 30.0


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    """One thread, another than the test's own."""
    with ThreadPoolExecutor(1) as other:
        yield other


@pytest.fixture
def lock() -> ReentrantLock:
    return ReentrantLock(locks_client(), "apple")


def holds(lock: ReentrantLock) -> list[int]:
    return [int(count) for count in lock.client.hvals(lock.key)]


@pytest.mark.parametrize(("kind", "passes"), [(ReentrantLock, True), (TokenLock, False)])
def test_get_locks_and_calls_set_which_locks(
    kind: type[ReentrantLock | PollingLock], passes: bool
) -> None:
    """A0: get() { lock.lock(); set(); lock.unlock(); }  set() { lock.lock(); lock.unlock(); }"""
    outer, inner = (kind(locks_client(), "apple", ttl=LONG) for _ in range(2))
    with outer.hold(1), nullcontext() if passes else pytest.raises(LockTimeout), inner.hold(0.2):
        assert passes


def test_the_lock_is_free_after_as_many_releases_by_its_owner_as_holds(
    lock: ReentrantLock, other: ThreadPoolExecutor
) -> None:
    leases = [lock.acquire(0) for _ in range(3)]
    assert holds(lock) == [3]
    with pytest.raises(LockNotHeld, match="another thread"):
        other.submit(leases[0].release).result()
    for lease in leases:
        assert other.submit(lock.try_acquire).result() is None
        assert lease.release() is Release.RELEASED
    assert holds(lock) == []
    assert other.submit(lock.try_acquire).result() is not None


def test_an_unlock_between_the_failed_attempt_and_the_subscription_is_not_missed(
    lock: ReentrantLock, other: ThreadPoolExecutor
) -> None:
    found_taken, unlocked = threading.Event(), threading.Event()

    def wait_for_the_unlock(name: str, facts: Mapping[str, object]) -> None:
        assert name == "reentrant:before_subscribe"
        found_taken.set()
        assert unlocked.wait(5)

    with points.installed(wait_for_the_unlock):
        lease = lock.acquire(0)
        waiting = other.submit(lock.acquire, 20)
        assert found_taken.wait(5)
        lease.release()
        unlocked.set()
        assert waiting.result(timeout=5).waited_seconds < 5


def test_one_connection_serves_all_waiters_of_a_lock_and_no_channel_stays_behind() -> None:
    client = locks_client()
    locks = [ReentrantLock(client, f"product:{number}") for number in range(3)]

    def subscribed() -> list[int]:
        """How many connections listen to each lock's channel; other locks may have theirs."""
        return [count for _, count in client.pubsub_numsub(*(lock.channel for lock in locks))]

    held = [lock.acquire(0) for lock in locks]
    with ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(use, lock) for lock in locks for _ in range(4)]
        eventually(lambda: subscribed() == [1, 1, 1], what="so it is")
        for lease in held:
            lease.release()
        for waiter in waiting:
            waiter.result(timeout=10)
    eventually(lambda: subscribed() == [0, 0, 0], what="so it is")


def use(lock: Lock) -> None:
    with lock.hold(20):
        pass


def test_without_a_lease_the_watchdog_renews_and_with_one_it_does_not(
    other: ThreadPoolExecutor,
) -> None:
    renewed, given = (ReentrantLock(locks_client(), name, ttl=0.6) for name in ("renewed", "given"))
    kept, lapsed = renewed.try_lock(0), given.try_lock(0, lease=0.6)
    assert kept
    assert lapsed
    taken = other.submit(given.acquire, 5).result()  # at the end of the lease, no sooner
    assert taken.waited_seconds > 0.3
    eventually(lambda: kept.held_seconds > 1.2, what="so it is")
    kept.check()
    assert kept.release() is Release.RELEASED
    assert lapsed.release() is Release.EXPIRED
    assert other.submit(taken.release).result() is Release.RELEASED


def test_an_inner_release_does_not_end_the_renewal_of_the_outer_hold() -> None:
    lock = ReentrantLock(locks_client(), "apple", ttl=0.6)
    before = set(threading.enumerate())
    with lock.hold(0) as outer:
        with lock.hold(0):
            pass
        (watchdog,) = set(threading.enumerate()) - before
        eventually(lambda: outer.held_seconds > 1.2, what="so it is")
        outer.check()
    assert outer.outcome is Release.RELEASED
    watchdog.join(5)
    assert not watchdog.is_alive(), "it ends with the last hold"


def test_try_lock_gives_none_when_the_wait_is_over(
    lock: ReentrantLock, other: ThreadPoolExecutor
) -> None:
    def wait() -> tuple[Lease | None, float]:
        started = time.monotonic()
        return lock.try_lock(0.2, 10), time.monotonic() - started

    with lock.hold(0):
        lease, took = other.submit(wait).result()
    assert lease is None
    assert 0.2 <= took < 1.0
    eventually(lambda: not subscriber._channels, what="nobody listens")
