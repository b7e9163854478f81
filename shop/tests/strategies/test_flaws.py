"""Locks of the articles, where no fault shows it: a takeover without a winner, and what Redisson's
lock promises."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from locks import LockNotHeld, Release
from shop.ops.redis import locks_client
from shop.sale import points
from shop.strategies import setnx_timestamp
from shop.strategies.reentrant import ReentrantLock
from shop.tests.purchases import run_at

LONG = 30.0


def test_getset_after_del_leaves_a_lock_without_a_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(setnx_timestamp, "wall_clock", lambda: clock[0])
    lock = setnx_timestamp.SetnxTimestampLock(locks_client(), "apple", ttl=LONG)
    late = lock.acquire(1)
    clock[0] += LONG + 1
    with points.installed(run_at("setnx-timestamp:before_takeover", late.release)):
        assert lock.try_acquire() is None
    assert lock.try_acquire() is None
    clock[0] += LONG + 0.001
    assert lock.try_acquire() is not None


# --- Redisson's lock: what A0 and A3 promise of it ------------------------------------------------


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    """Yield a thread other than the test's own."""
    with ThreadPoolExecutor(1) as other:
        yield other


@pytest.fixture
def lock() -> ReentrantLock:
    return ReentrantLock(locks_client(), "apple")


def test_lock_is_free_after_as_many_releases_as_holds(
    lock: ReentrantLock, other: ThreadPoolExecutor
) -> None:
    """A0: get() locks and calls set(), which locks."""
    leases = [lock.acquire(0) for _ in range(3)]
    assert lock.client.hvals(lock.key) == [b"3"]
    with pytest.raises(LockNotHeld, match="another thread"):
        other.submit(leases[0].release).result()
    for lease in leases:
        assert other.submit(lock.try_acquire).result() is None
        assert lease.release() is Release.RELEASED
    assert lock.client.hvals(lock.key) == []
    others_lease = other.submit(lock.acquire, 0).result()
    assert other.submit(others_lease.release).result() is Release.RELEASED


def test_lock_taken_with_a_lease_is_not_renewed(other: ThreadPoolExecutor) -> None:
    """A3: tryLock(100, 10, TimeUnit.SECONDS)."""
    lock = ReentrantLock(locks_client(), "apple", ttl=0.3, renew=False)
    lease = lock.acquire(0)
    mine = other.submit(lock.acquire, 5).result()
    assert lease.release() is Release.EXPIRED
    assert other.submit(mine.release).result() is not Release.UNKNOWN


def test_unlock_before_the_subscription_is_not_missed(
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
        late_lease = waiting.result(timeout=5)
        assert late_lease.waited_seconds < 5
        assert other.submit(late_lease.release).result() is Release.RELEASED
