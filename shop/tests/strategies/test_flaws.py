"""Each flaw in miniature: one scenario for the lock that has the flaw and its sound neighbour.

What is expected of each lock is data; the scenario does not know which one it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import redis

from locks import Lease, Lock, LockTimeout, Release
from shop.ops.redis import locks_client
from shop.sale import points
from shop.sale.polling import PollingLock
from shop.strategies import setnx_timestamp, setnx_timestamp_del
from shop.strategies.setnx_expire import SetnxExpireLock
from shop.strategies.setnx_expire_lua import SetnxExpireLuaLock
from shop.strategies.setnx_expire_repair import SetnxExpireRepairLock
from shop.strategies.setnx_timestamp import SetnxTimestampLock
from shop.strategies.setnx_timestamp_del import SetnxTimestampDelLock
from shop.strategies.setpx_del import SetpxDelLock
from shop.strategies.token import TokenLock
from shop.strategies.token_get_del import TokenGetDelLock
from shop.strategies.token_watchdog import TokenWatchdogLock

TTL = 0.3
LONG = 30.0
Kind = type[PollingLock]


class Killed(BaseException):
    """The process ends here: nothing that comes after runs."""


def make(kind: Kind, *, ttl: float = LONG) -> PollingLock:
    return kind(locks_client(), "apple", ttl=ttl, retry=0.01)


def gets_in(lock: Lock, *, within: float = 3 * TTL) -> bool:
    try:
        lock.acquire(within).release()
    except LockTimeout:
        return False
    return True


def at_each_point(happens: Callable[[str], object]) -> points.Probe:
    """A probe that is not called while it runs."""
    inside = threading.local()

    def probe(name: str, facts: Mapping[str, object]) -> None:
        if not getattr(inside, "is", False):
            setattr(inside, "is", True)
            try:
                happens(name)
            finally:
                setattr(inside, "is", False)

    return probe


@pytest.mark.parametrize(
    ("kind", "recovers"),
    [(SetnxExpireLock, False), (SetnxExpireRepairLock, True), (SetnxExpireLuaLock, True)],
)
def test_a_holder_killed_before_it_has_set_a_ttl_locks_everybody_out_where_nothing_repairs_it(
    kind: Kind, recovers: bool
) -> None:
    lock = make(kind, ttl=TTL)

    def kill(name: str, facts: Mapping[str, object]) -> None:
        raise Killed

    with suppress(Killed), points.installed(kill):  # with no such point, it dies holding the lock
        lock.acquire(1)
    assert (lock.client.pttl(lock.key) == -1) is (kind is not SetnxExpireLuaLock)
    assert gets_in(lock) is recovers


@pytest.mark.parametrize(
    ("kind", "third_gets_in"),
    [
        *((SetnxExpireLock, True), (SetnxExpireRepairLock, True), (SetpxDelLock, True)),
        *((SetnxTimestampLock, True), (SetnxTimestampDelLock, True)),
        *((SetnxExpireLuaLock, False), (TokenGetDelLock, False), (TokenLock, False)),
    ],
)
def test_a_late_release_frees_the_next_holder_s_lock_unless_it_compares_a_token(
    kind: Kind, third_gets_in: bool
) -> None:
    late = make(kind, ttl=TTL).acquire(1)
    make(kind).acquire(5)
    assert late.release() is (Release.RELEASED if third_gets_in else Release.EXPIRED)
    assert gets_in(make(kind), within=0) is third_gets_in


@pytest.mark.parametrize(("kind", "third_gets_in"), [(TokenGetDelLock, True), (TokenLock, False)])
def test_a_token_compared_and_deleted_in_two_steps_frees_the_next_holder_s_lock(
    kind: Kind, third_gets_in: bool
) -> None:
    first, second = make(kind, ttl=TTL).acquire(1), []

    with points.installed(at_each_point(lambda _: second.append(make(kind).acquire(5)))):
        assert first.release() is Release.RELEASED
    if not second:  # nothing comes between in this lock
        second.append(make(kind).acquire(5))
    assert gets_in(make(kind), within=0) is third_gets_in


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    """`clock.now`: what this thread's node takes for the time."""
    clock = threading.local()
    for file in (setnx_timestamp, setnx_timestamp_del):
        monkeypatch.setattr(file, "now", lambda: clock.now)
    return clock


@pytest.mark.parametrize(
    ("kind", "stolen"),
    [(SetnxTimestampLock, True), (SetnxTimestampDelLock, True), (TokenLock, False)],
)
@pytest.mark.parametrize(("ahead", "enough"), [(29.999, False), (30.001, True)])
def test_a_clock_ahead_by_more_than_the_ttl_steals_a_lock_that_is_a_time(
    kind: Kind, stolen: bool, ahead: float, enough: bool, clock: threading.local
) -> None:
    clock.now = 1000.0
    make(kind).acquire(1)
    clock.now = 1000.0 + ahead
    assert gets_in(make(kind), within=0) is (stolen and enough)


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
    with points.installed(at_each_point(lambda _: late.release())):
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
        assert not gets_in(lock, within=3 * TTL)
        lease.check()
    watchdog.join(5)
    assert not watchdog.is_alive()
    assert lease.outcome is Release.RELEASED


def test_a4_s_script_as_printed_does_not_compile() -> None:
    printed = (
        "if redis.call('setnx',KEYS[1],ARGV[1]) == 1 then"
        "redis.call('expire',KEYS[1],ARGV[2]) return 1 else return 0 end"
    )
    with pytest.raises(redis.ResponseError, match="'then' expected"):
        locks_client().eval(printed, 1, "lock:apple", "ours", 9)
