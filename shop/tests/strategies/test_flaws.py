"""Two locks from the articles A0 to A4 (docs/sources.md), in cases that the load test cannot show.

`setnx-timestamp`: after a failed takeover of an expired lock, no buyer can acquire it for a while.
`reentrant`, a copy of Redisson's lock: a thread can acquire it repeatedly, a lease with a fixed ttl
ends, and no waiter misses an unlock.
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
#: Time for an event that always occurs.
TIMEOUT_SECONDS = 5


def test_failed_takeover_blocks_the_lock_for_one_ttl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A buyer sees an expired lock, whose holder deletes the key before the buyer sends GETSET.

    The key of this lock contains the time at which the lock expires. The buyer's GETSET gets no old
    value, so the takeover fails, but GETSET has written a new time. No buyer gets the lock until
    that time has passed, although no buyer holds it.
    """
    now = [1000.0]  # the clock of the lock, in seconds
    monkeypatch.setattr(setnx_timestamp, "wall_clock", lambda: now[0])
    lock = setnx_timestamp.SetnxTimestampLock(locks_client(), "apple", ttl=TTL_SECONDS)
    expired_lease = lock.acquire(1)
    now[0] += TTL_SECONDS + 1
    with points.use_probe(make_probe("setnx-timestamp:before_takeover", expired_lease.release)):
        assert lock.try_acquire() is None
    assert lock.try_acquire() is None  # although no buyer holds the lock
    now[0] += TTL_SECONDS + 0.001  # the time that GETSET has written has passed
    assert lock.try_acquire() is not None


# --- `reentrant`: Redisson's lock, as the articles A0 and A3 use it -------------------------------


@pytest.fixture
def other_thread() -> Iterator[ThreadPoolExecutor]:
    """A pool of one thread, in which a test can use a lock as another owner."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def lock() -> ReentrantLock:
    return ReentrantLock(locks_client(), "apple")


def test_lock_held_three_times_needs_three_releases(
    lock: ReentrantLock, other_thread: ThreadPoolExecutor
) -> None:
    """A thread may acquire the lock again while it holds the lock.

    Article A0 (docs/sources.md) does so: get() acquires the lock, and calls set(), which acquires
    the same lock.
    """
    leases = [lock.acquire(0) for _ in range(3)]
    # The only field of the Redis hash is the owner; its value is the number of its leases.
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
    """Without a watchdog, the lease ends after its ttl, and another thread gets the lock.

    The article A3 (docs/sources.md) calls tryLock(100, 10, TimeUnit.SECONDS), whose lease ends
    after 10 s.
    """
    lock = ReentrantLock(locks_client(), "apple", ttl=0.3, has_watchdog=False)
    lease = lock.acquire(0)
    next_lease = other_thread.submit(lock.acquire, TIMEOUT_SECONDS).result()
    assert lease.release() is Release.EXPIRED
    # On a slow machine the next lease has expired by now, too, so EXPIRED is also right.
    assert other_thread.submit(next_lease.release).result() is not Release.UNKNOWN


def test_unlock_before_the_subscription_is_not_missed(
    lock: ReentrantLock, other_thread: ThreadPoolExecutor
) -> None:
    """The holder unlocks after the waiter saw the lock, and before the waiter subscribes.

    The message about the unlock is published before the waiter subscribes, so the waiter must not
    wait for it.
    """
    waiter_saw_lock = threading.Event()
    unlocked = threading.Event()

    def stop_waiter_until_unlock(point: str, fields: Mapping[str, object]) -> None:
        assert point == "reentrant:before_subscribe"
        waiter_saw_lock.set()
        assert unlocked.wait(TIMEOUT_SECONDS)

    with points.use_probe(stop_waiter_until_unlock):
        lease = lock.acquire(0)
        waiter = other_thread.submit(lock.acquire, 4 * TIMEOUT_SECONDS)
        assert waiter_saw_lock.wait(TIMEOUT_SECONDS)
        lease.release()
        unlocked.set()
        waiters_lease = waiter.result(timeout=TIMEOUT_SECONDS)
        assert waiters_lease.waited_seconds < TIMEOUT_SECONDS
        assert other_thread.submit(waiters_lease.release).result() is Release.RELEASED
