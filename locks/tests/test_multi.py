"""MultiLock: all or none, in one order, within one wait, and lost together."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from typing import Any

import pytest
import redis

from .. import (
    Lease,
    LockBackendError,
    LockLost,
    LockTimeout,
    MultiLease,
    MultiLock,
    RedisLock,
    Release,
)
from ..errors import LossReason
from ..several import together
from ..testing.server import Server, free_port
from .waiting import held, in_thread, queued


@pytest.fixture
def lock_of(client: redis.Redis) -> Callable[[str], RedisLock]:
    return lambda name: RedisLock(client, name, ttl=10)


def test_twenty_threads_that_name_the_locks_in_opposite_orders_all_get_them(
    lock_of: Callable[[str], RedisLock],
) -> None:
    """Each would hold one and wait forever for the other's (Redisson 1160, 467)."""
    names = ["a", "b", "c"]
    inside = dict.fromkeys(names, 0)
    overlaps: list[int] = []
    barrier = threading.Barrier(20)

    def work(seed: int) -> None:
        chosen = random.Random(seed).sample(names, 2 + seed % 2)
        lock = MultiLock(map(lock_of, chosen if seed % 2 else reversed(chosen)))
        barrier.wait(10)
        for _ in range(5):
            with lock.hold(wait=30):
                for name in chosen:
                    inside[name] += 1
                    overlaps.append(inside[name])
                for name in chosen:
                    inside[name] -= 1

    for each in [in_thread(lambda seed=seed: work(seed)) for seed in range(20)]:  # type: ignore[misc]
        each.result(60)
    assert set(overlaps) == {1}
    assert not any(lock_of(name).locked() for name in names)


def test_two_that_name_the_locks_in_opposite_orders_never_hold_one_each(
    lock_of: Callable[[str], RedisLock],
) -> None:
    """What two locks taken one after the other do, and MultiLock cannot: forced, not by luck."""
    a, b = lock_of("a"), lock_of("b")
    with held(a), held(b):
        first = in_thread(lambda: MultiLock([a, b]).acquire(5))
        second = in_thread(lambda: MultiLock([b, a]).acquire(5))
        over: set[Future[MultiLease]] = set()
        queued(a, 2)
        assert b.inspect().waiters == ()  # nobody asks for the second before it has the first
    for _ in range(2):
        done, _ = wait_for({first, second} - over, 5, FIRST_COMPLETED)
        over |= done
        for each in done:
            each.result().release()
    assert over == {first, second}


def test_those_that_were_acquired_are_released_when_one_is_not_free_in_time(
    lock_of: Callable[[str], RedisLock],
) -> None:
    locks = [lock_of(name) for name in "abc"]
    with held(locks[2]):
        started = time.monotonic()
        with pytest.raises(LockTimeout, match=r"^c: "):
            MultiLock(locks).acquire(0.3)
        assert 0.3 <= time.monotonic() - started < 0.8  # not 0.3 s for each of them
        assert [lock.locked() for lock in locks] == [False, False, True]
        assert locks[2].inspect().waiters == ()
        assert MultiLock(locks).try_acquire() is None
    lease = MultiLock(locks).try_acquire()  # no wait at all is enough where all are free
    assert lease is not None
    assert lease.release() is Release.RELEASED


class Interrupted(BaseException):
    """Replaces KeyboardInterrupt in a thread that is not the main one."""


def test_an_interrupt_while_one_is_waited_for_releases_the_others_and_ends_their_renewal(
    lock_of: Callable[[str], RedisLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redisson 4456 left them locked and renewed."""
    from .. import shared

    locks = [lock_of(name) for name in "abc"]

    def interrupt(*_: object) -> None:
        assert locks[0].locked()
        assert locks[1].locked()
        raise Interrupted

    with held(locks[2]):
        monkeypatch.setattr(shared, "_sleep", interrupt)
        with pytest.raises(Interrupted):
            MultiLock(locks).acquire(5)
        assert [lock.locked() for lock in locks] == [False, False, True]
        assert len(locks[0]._watchdog.renewals) == 1


def test_a_server_that_is_not_reached_leaves_no_lock_on_the_other_one(
    lock_of: Callable[[str], RedisLock],
) -> None:
    nobody = RedisLock(redis.Redis(port=free_port()), "b", ttl=10)
    with pytest.raises(LockBackendError):
        MultiLock([lock_of("a"), nobody]).acquire(5)
    assert not lock_of("a").locked()


def test_the_fences_are_a_mapping_by_name_and_rise_each_by_itself(
    lock_of: Callable[[str], RedisLock],
) -> None:
    both = MultiLock([lock_of("b"), lock_of("a"), lock_of("b")])  # the second b is the same lock
    with both.hold(wait=1) as lease:
        assert [each.name for each in lease.leases] == ["a", "b"]
        first = lease.fences
        assert list(first) == ["a", "b"]
        assert 9 < lease.remaining() <= 10
        assert lease.owned()
        lease.extend(60)
        assert lease.remaining() > 50
        lease.check()
    assert lease.outcome is Release.RELEASED
    with both.hold(wait=1) as lease:
        assert all((lease.fences[name] or 0) > (first[name] or 0) for name in first)


def test_losing_one_is_losing_the_lease(client: redis.Redis) -> None:
    locks = [RedisLock(client, name, ttl=0.6) for name in ("kept", "lost")]
    lease = MultiLock(locks).acquire(1)
    client.delete("lock:{lost}")
    assert lease.lost_event.wait(5)
    assert lease.lost
    assert lease.loss is LossReason.GONE
    assert lease.remaining() == 0
    with pytest.raises(LockLost):
        lease.check()
    assert locks[0].locked()  # nobody works on the other one before we have left the block
    assert lease.release() is Release.EXPIRED
    assert not locks[0].locked()


def test_a_lock_that_was_lost_while_another_was_waited_for_is_noticed(client: redis.Redis) -> None:
    short = RedisLock(client, "a", ttl=0.2, renew=False)
    slow = RedisLock(client, "b", ttl=10)
    with held(slow):
        both = in_thread(lambda: MultiLock([short, slow]).acquire(10))
        queued(slow, 1)
        with held(short):  # the first one has expired meanwhile
            pass
    with pytest.raises(LockLost, match=r"^a: lost while others were waited for"):
        both.result(5)
    assert not slow.locked()


def test_a_release_that_fails_keeps_none_of_the_others(
    lock_of: Callable[[str], RedisLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = MultiLock([lock_of("a"), lock_of("b"), lock_of("c")]).acquire(1)
    release, seen = Lease.release, []

    def fail(each: Lease) -> Release:
        seen.append(each.name)
        if each.name == "b" and seen.count("b") == 1:
            raise ZeroDivisionError
        return release(each)

    monkeypatch.setattr(Lease, "release", fail)
    with pytest.raises(ZeroDivisionError):
        release(lease)
    assert seen == ["c", "b", "a"]
    assert [lock_of(name).locked() for name in "abc"] == [False, True, False]
    assert release(lease) is Release.RELEASED  # may be called again
    assert not lock_of("b").locked()


def test_a_dropped_multi_lease_is_not_renewed(client: redis.Redis) -> None:
    import gc

    locks = [RedisLock(client, name, ttl=0.3) for name in ("a", "b")]
    MultiLock(locks).acquire(1)
    gc.collect()
    with MultiLock(locks).hold(wait=5):
        pass


def test_arguments_that_cannot_work_are_refused(server: Server, client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="name what is to be locked"):
        MultiLock([])
    for other in (RedisLock(client, "a", key="b", ttl=1), RedisLock(server.client(), "a", ttl=1)):
        with pytest.raises(ValueError, match="another name"):
            MultiLock([RedisLock(client, "a", ttl=1), other])
    both = MultiLock([RedisLock(client, "a", ttl=1), RedisLock(client, "b", ttl=1)])
    for wait in (-1, float("nan")):
        with pytest.raises(ValueError, match="give seconds"):
            both.acquire(wait)


def test_the_wait_is_for_all_locks_together_and_not_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([100.0, 104.0, 107.0, 108.0])
    monkeypatch.setattr(together, "now", lambda: next(times))
    locks: Any = ["a", "b", "c"]
    assert list(together.in_turn(locks, 5.0)) == [("a", 5.0), ("b", 1.0), ("c", 0.0)]
    assert list(together.in_turn(locks, None)) == [("a", None), ("b", None), ("c", None)]


def test_the_deadline_of_several_leases_is_that_of_the_first_one_that_ends() -> None:
    class Ends:
        def __init__(self, deadline: float) -> None:
            self.deadline = deadline

    class Both:
        leases = (Ends(9.0), Ends(7.0))

    assert together.Together.deadline.fget(Both()) == 7.0  # type: ignore[attr-defined]


def test_two_names_of_one_key_are_refused_and_locks_of_several_are_taken_apart(
    client: redis.Redis,
) -> None:
    """Else the second is waited for until the wait ends, by whoever holds the first."""
    a, b, c = (RedisLock(client, name, ttl=10) for name in "abc")
    with pytest.raises(ValueError, match="one key"):
        MultiLock(
            [RedisLock(client, "x", key="k", ttl=10), RedisLock(client, "y", key="k", ttl=10)]
        )
    both = MultiLock([MultiLock([b, c]), MultiLock([a, b])])
    with both.hold(wait=0.5) as lease:
        assert list(lease.fences) == ["a", "b", "c"]
