"""Locks of the articles, where no fault shows it: two takeovers, a release by a stranger, and what
Redisson's lock promises."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from locks import Lease, LockNotHeld, LockTimeout, Release
from shop.ops.redis import locks_client
from shop.sale import points
from shop.sale.polling import PollingLock
from shop.strategies import setnx_timestamp, setnx_timestamp_del
from shop.strategies.reentrant import ReentrantLock
from shop.strategies.setnx_timestamp import SetnxTimestampLock
from shop.strategies.setnx_timestamp_del import SetnxTimestampDelLock
from shop.strategies.token import TokenLock
from shop.strategies.token_watchdog import TokenWatchdogLock
from shop.tests.till import at

LONG = 30.0
Kind = type[PollingLock]


def make(kind: Kind) -> PollingLock:
    return kind(locks_client(), "apple", ttl=LONG, retry=0.01)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    """`clock.now`: what this thread's node takes for the time."""
    clock = threading.local()
    for file in (setnx_timestamp, setnx_timestamp_del):
        monkeypatch.setattr(file, "wall_clock", lambda: clock.now)
    return clock


@pytest.mark.parametrize(("kind", "winners"), [(SetnxTimestampLock, 1), (SetnxTimestampDelLock, 2)])
def test_two_that_find_the_lock_expired_both_get_it_where_they_delete_it_first(
    kind: Kind, winners: int, clock: threading.local
) -> None:
    clock.now = 1000.0
    make(kind).acquire(1)  # its holder died
    both_have_read, first_is_through = threading.Barrier(2), threading.Event()

    def one_after_the_other(name: str, facts: Mapping[str, object]) -> None:
        assert name == "setnx-timestamp:before_takeover"
        if both_have_read.wait(5):
            assert first_is_through.wait(5)

    def contend(now: float) -> Lease | None:
        clock.now = now
        try:
            return make(kind).try_acquire()
        finally:
            first_is_through.set()

    with points.installed(one_after_the_other), ThreadPoolExecutor(2) as contenders:
        got = dict(zip([2000, 3000], contenders.map(contend, [2000.0, 3000.0]), strict=True))
    assert sum(lease is not None for lease in got.values()) == winners
    if winners == 1:  # A1: the time in the key is that of the one who lost
        (loser,) = (now for now, lease in got.items() if lease is None)
        assert locks_client().get(make(kind).key) == str(int(loser + LONG) * 1000).encode()


def test_a_getset_after_the_holders_del_leaves_a_lock_that_nobody_has(
    clock: threading.local,
) -> None:
    lock = make(SetnxTimestampLock)
    clock.now = 1000.0
    late = lock.acquire(1)
    clock.now += LONG + 1
    with points.installed(at("setnx-timestamp:before_takeover", late.release)):
        assert lock.try_acquire() is None
    assert lock.try_acquire() is None
    clock.now += LONG + 0.001
    assert lock.try_acquire() is not None


@pytest.mark.parametrize(("same_value", "found"), [(True, True), (False, False)])
def test_a_thread_id_for_a_value_lets_another_process_release_the_lock(
    same_value: bool, found: bool
) -> None:
    thread_1_of_one_jvm, thread_1_of_another = "1", "1" if same_value else "another token"
    holder, stranger = make(TokenWatchdogLock), make(TokenWatchdogLock)
    assert holder.try_lock(thread_1_of_one_jvm)
    assert stranger.unlock(thread_1_of_another) is found


# --- Redisson's lock: what A0 and A3 promise of it ------------------------------------------------


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    """One thread, another than the test's own."""
    with ThreadPoolExecutor(1) as other:
        yield other


@pytest.fixture
def lock() -> ReentrantLock:
    return ReentrantLock(locks_client(), "apple")


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
    assert lock.client.hvals(lock.key) == [b"3"]
    with pytest.raises(LockNotHeld, match="another thread"):
        other.submit(leases[0].release).result()
    for lease in leases:
        assert other.submit(lock.try_acquire).result() is None
        assert lease.release() is Release.RELEASED
    assert lock.client.hvals(lock.key) == []
    taken = other.submit(lock.acquire, 0).result()
    assert other.submit(taken.release).result() is Release.RELEASED


def test_a_lock_taken_with_a_lease_is_not_renewed(other: ThreadPoolExecutor) -> None:
    """A3: lock(10, TimeUnit.SECONDS)."""
    lock = ReentrantLock(locks_client(), "apple", ttl=0.3)  # a watchdog would renew it each 0.1 s
    taken = lock.try_lock(0, lease=0.5)
    assert taken is not None
    mine = other.submit(lock.try_lock, 5, 20).result()
    assert mine is not None
    assert taken.release() is Release.EXPIRED
    assert other.submit(mine.release).result() is Release.RELEASED


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
        taken = waiting.result(timeout=5)
        assert taken.waited_seconds < 5
        assert other.submit(taken.release).result() is Release.RELEASED
