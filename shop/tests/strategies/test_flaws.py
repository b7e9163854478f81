"""Flaws that no fault shows: two takeovers, and a release by a stranger."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from locks import Lease, LockTimeout, Release
from shop.ops.redis import locks_client
from shop.sale import points
from shop.sale.polling import PollingLock
from shop.strategies import setnx_timestamp, setnx_timestamp_del
from shop.strategies.setnx_timestamp import SetnxTimestampLock
from shop.strategies.setnx_timestamp_del import SetnxTimestampDelLock
from shop.strategies.token_watchdog import TokenWatchdogLock
from shop.tests.till import at

TTL = 0.3
LONG = 30.0
Kind = type[PollingLock]


def make(kind: Kind, *, ttl: float = LONG) -> PollingLock:
    return kind(locks_client(), "apple", ttl=ttl, retry=0.01)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    """`clock.now`: what this thread's node takes for the time."""
    clock = threading.local()
    for file in (setnx_timestamp, setnx_timestamp_del):
        monkeypatch.setattr(file, "now", lambda: clock.now)
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


def test_a_watchdog_renews_what_is_its_holders_and_ends_with_the_release() -> None:
    before = set(threading.enumerate())
    lock = make(TokenWatchdogLock, ttl=TTL)
    with lock.hold(1) as lease:
        (watchdog,) = set(threading.enumerate()) - before
        with pytest.raises(LockTimeout):
            lock.acquire(3 * TTL)
        lease.check()
    watchdog.join(5)
    assert not watchdog.is_alive()
    assert lease.outcome is Release.RELEASED
