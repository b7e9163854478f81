"""Each flaw in miniature: one scenario for the lock that has the flaw and its sound neighbour.

What is expected of each lock is data; the scenario does not know which one it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import redis

from ...classic.points import Hook
from ...classic.setnx_timestamp import SetnxTimestampLock
from ...classic.token_watchdog import A2_SCHEDULE, Schedule, TokenWatchdogLock
from ...errors import LockTimeout
from ...lease import Lease, Release
from ...lock import Lock
from ...testing.server import eventually
from .conftest import Make

TTL = 0.3
LONG = 30.0

Install = Callable[[Hook | None], None]


class Killed(BaseException):
    """The process ends here: nothing that comes after runs."""


def gets_in(lock: Lock, *, within: float = 3 * TTL) -> bool:
    try:
        lease = lock.acquire(within)
    except LockTimeout:
        return False
    lease.release()
    return True


@pytest.mark.parametrize(
    ("kind", "recovers"),
    [("setnx-expire", False), ("setnx-expire-repair", True), ("setnx-expire-lua", True)],
)
def test_a_holder_killed_before_it_has_set_a_ttl_locks_everybody_out_where_nothing_repairs_it(
    kind: str, recovers: bool, make: Make, hook: Install, client: redis.Redis
) -> None:
    lock = make(kind, ttl=TTL)

    def kill(name: str) -> None:
        if name == "setnx:before_expire":
            raise Killed

    hook(kill)
    with suppress(Killed):  # with no such point in the lock, the holder dies holding it
        lock.acquire(1)
    hook(None)
    assert (client.pttl(f"lock:{lock.name}") == -1) is (kind != "setnx-expire-lua")
    assert gets_in(lock) is recovers


@pytest.mark.parametrize(
    ("kind", "third_gets_in", "found"),
    [
        ("setnx-expire", True, Release.RELEASED),
        ("setnx-expire-repair", True, Release.RELEASED),
        ("setnx-timestamp", True, Release.RELEASED),
        ("setnx-timestamp-del", True, Release.RELEASED),
        ("setpx-del", True, Release.RELEASED),
        ("setnx-expire-lua", False, Release.EXPIRED),
        ("token-get-del", False, Release.EXPIRED),
        ("token", False, Release.EXPIRED),
        ("redlock", False, Release.EXPIRED),
    ],
)
def test_a_late_release_frees_the_next_holder_s_lock_unless_it_compares_a_token(
    kind: str, third_gets_in: bool, found: Release, make: Make
) -> None:
    late = make(kind, ttl=TTL).acquire(1)
    make(kind, ttl=LONG).acquire(5)
    assert late.release() is found
    assert gets_in(make(kind, ttl=LONG), within=0) is third_gets_in


@pytest.mark.parametrize(("kind", "third_gets_in"), [("token-get-del", True), ("token", False)])
def test_a_token_compared_and_deleted_in_two_steps_frees_the_next_holder_s_lock(
    kind: str, third_gets_in: bool, make: Make, hook: Install
) -> None:
    first, second = make(kind, ttl=TTL).acquire(1), []

    def expire(name: str) -> None:
        hook(None)
        second.append(make(kind, ttl=LONG).acquire(5))

    hook(expire)
    assert first.release() is Release.RELEASED
    if not second:  # nothing comes between in this lock
        second.append(make(kind, ttl=LONG).acquire(5))
    assert gets_in(make(kind, ttl=LONG), within=0) is third_gets_in


def at(lock: Lock, clock: Callable[[], float]) -> Lock:
    """The lock on a node with that clock; one that asks no clock is the same everywhere."""
    if isinstance(lock, SetnxTimestampLock):
        lock.clock = clock
    return lock


@pytest.mark.parametrize(
    ("kind", "stolen"),
    [("setnx-timestamp", True), ("setnx-timestamp-del", True), ("token", False)],
)
@pytest.mark.parametrize(("ahead", "enough"), [(4.999, False), (5.001, True)])
def test_a_clock_ahead_by_more_than_the_ttl_steals_a_lock_that_is_a_time(
    kind: str, stolen: bool, ahead: float, enough: bool, make: Make
) -> None:
    at(make(kind, ttl=5.0), lambda: 1000.0).acquire(1)
    contender = at(make(kind, ttl=5.0), lambda: 1000.0 + ahead)
    assert gets_in(contender, within=0) is (stolen and enough)


@pytest.mark.parametrize(("kind", "winners"), [("setnx-timestamp", 1), ("setnx-timestamp-del", 2)])
def test_two_that_find_the_lock_expired_both_get_it_where_they_delete_it_first(
    kind: str, winners: int, make: Make, hook: Install, client: redis.Redis
) -> None:
    at(make(kind, ttl=5.0), lambda: 1000.0).acquire(1)  # its holder died
    both_have_read, first_is_through = threading.Barrier(2), threading.Event()

    def one_after_the_other(name: str) -> None:
        assert name == "setnx-timestamp:before_takeover"
        if both_have_read.wait(5):
            assert first_is_through.wait(5)

    def contend(now: float) -> Lease | None:
        try:
            return at(make(kind, ttl=5.0), lambda: now).try_acquire()
        finally:
            first_is_through.set()

    hook(one_after_the_other)
    with ThreadPoolExecutor(2) as contenders:
        got = dict(zip([2000, 3000], contenders.map(contend, [2000.0, 3000.0]), strict=True))
    assert sum(lease is not None for lease in got.values()) == winners
    if winners == 1:  # A1: the time in the key is that of the one who lost
        (loser,) = (now for now, lease in got.items() if lease is None)
        assert client.get(f"lock:{make(kind).name}") == str((loser + 5) * 1000).encode()


def test_a_getset_after_the_holders_del_leaves_a_lock_that_nobody_has(
    make: Make, hook: Install
) -> None:
    now = 1000.0
    lock = at(make("setnx-timestamp", ttl=5.0), lambda: now)
    late = lock.acquire(1)
    now = 1010.0

    def release(name: str) -> None:
        late.release()
        hook(None)

    hook(release)
    assert lock.try_acquire() is None
    assert lock.try_acquire() is None
    now = 1015.001
    assert lock.try_acquire() is not None


@pytest.mark.parametrize(("schedule", "kept"), [(A2_SCHEDULE, False), (Schedule(), True)])
def test_a_second_renewal_that_is_a_moment_late_loses_the_lock_on_a2_s_schedule(
    schedule: Schedule, kept: bool, client: redis.Redis, hook: Install
) -> None:
    lock = TokenWatchdogLock(client, "renewed", ttl=2 * TTL, schedule=schedule)
    renewals = 0

    def be_late(name: str) -> None:
        """On the second renewal, until the lock has ended, but no longer than 50 ms."""
        nonlocal renewals
        renewals += 1
        with suppress(AssertionError):
            eventually(lambda: renewals != 2 or not client.exists(lock.key), within=0.05)

    hook(be_late)
    lease = lock.acquire(1)
    eventually(lambda: renewals > 2 or not client.exists(lock.key))
    assert bool(client.exists(lock.key)) is kept
    assert lease.release() is (Release.RELEASED if kept else Release.EXPIRED)
    # The hook still uses the client: its thread must end before the client is closed.
    eventually(lambda: all(thread.name != "lock-renewal" for thread in threading.enumerate()))


@pytest.mark.parametrize(("same_value", "found"), [(True, True), (False, False)])
def test_a_thread_id_for_a_value_lets_another_process_release_the_lock(
    same_value: bool, found: bool, client: redis.Redis
) -> None:
    thread_1_of_one_jvm, thread_1_of_another = "1", "1" if same_value else "another token"
    holder, stranger = (TokenWatchdogLock(client, "sold", ttl=LONG) for _ in range(2))
    assert holder.try_lock(thread_1_of_one_jvm)
    assert stranger.unlock(thread_1_of_another) is found
