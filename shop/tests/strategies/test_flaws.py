"""Properties of the locks in the articles A0 to A4 that no fault of the load test shows.

They are a takeover that leaves no holder, and what the articles expect of Redisson's lock: that it
is reentrant, that a fixed lease ends, and that no waiter misses an unlock.
"""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from locks import LockNotHeld, Release
from shop.ops.redis import locks_client
from shop.sale import points
from shop.strategies import setnx_timestamp
from shop.strategies.reentrant import ReentrantLock
from shop.tests.purchases import make_probe

TTL_SECONDS = 30.0


def test_failed_takeover_blocks_the_lock_for_one_ttl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The expired holder releases the lock by DEL while a buyer is about to take it over by GETSET.

    The takeover fails, but its GETSET leaves a value without a holder. No buyer gets the lock until
    the time in this value has passed.
    """
    clock = [1000.0]
    monkeypatch.setattr(setnx_timestamp, "wall_clock", lambda: clock[0])
    lock = setnx_timestamp.SetnxTimestampLock(locks_client(), "apple", ttl=TTL_SECONDS)
    expired_lease = lock.acquire(1)
    clock[0] += TTL_SECONDS + 1
    with points.use_probe(make_probe("setnx-timestamp:before_takeover", expired_lease.release)):
        assert lock.try_acquire() is None
    assert lock.try_acquire() is None  # although no buyer holds the lock
    clock[0] += TTL_SECONDS + 0.001
    assert lock.try_acquire() is not None


# --- Redisson's lock, as the articles A0 and A3 use it --------------------------------------------


@pytest.fixture
def other_thread() -> Iterator[ThreadPoolExecutor]:
    """A thread other than the test's."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def lock() -> ReentrantLock:
    return ReentrantLock(locks_client(), "apple")


def test_lock_held_three_times_needs_three_releases(
    lock: ReentrantLock, other_thread: ThreadPoolExecutor
) -> None:
    """In article A0, get() takes the lock and calls set(), which takes the same lock again."""
    leases = [lock.acquire(0) for _ in range(3)]
    assert lock.client.hvals(lock.key) == [b"3"]
    with pytest.raises(LockNotHeld, match="another thread"):
        other_thread.submit(leases[0].release).result()
    for lease in leases:
        assert other_thread.submit(lock.try_acquire).result() is None
        assert lease.release() is Release.RELEASED
    assert lock.client.hvals(lock.key) == []
    next_lease = other_thread.submit(lock.acquire, 0).result()
    assert other_thread.submit(next_lease.release).result() is Release.RELEASED


def test_lock_with_a_fixed_lease_is_not_renewed(other_thread: ThreadPoolExecutor) -> None:
    """The lease ends after its ttl, as after tryLock(100, 10, TimeUnit.SECONDS) in article A3."""
    lock = ReentrantLock(locks_client(), "apple", ttl=0.3, has_watchdog=False)
    lease = lock.acquire(0)
    next_lease = other_thread.submit(lock.acquire, 5).result()
    assert lease.release() is Release.EXPIRED
    # The next lease may have expired by now, too.
    assert other_thread.submit(next_lease.release).result() is not Release.UNKNOWN


def test_unlock_before_the_subscription_is_not_missed(
    lock: ReentrantLock, other_thread: ThreadPoolExecutor
) -> None:
    """The holder unlocks after the waiter saw the lock, and before the waiter subscribes."""
    waiter_saw_lock = threading.Event()
    unlocked = threading.Event()

    def wait_for_unlock(point: str, facts: Mapping[str, object]) -> None:
        assert point == "reentrant:before_subscribe"
        waiter_saw_lock.set()
        assert unlocked.wait(5)

    with points.use_probe(wait_for_unlock):
        lease = lock.acquire(0)
        acquiring = other_thread.submit(lock.acquire, 20)
        assert waiter_saw_lock.wait(5)
        lease.release()
        unlocked.set()
        late_lease = acquiring.result(timeout=5)
        assert late_lease.waited_seconds < 5
        assert other_thread.submit(late_lease.release).result() is Release.RELEASED
