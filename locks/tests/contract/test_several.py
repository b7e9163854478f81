"""Tests of MultiLock, which acquires all of several locks or none.

It acquires them in the order of their names and within one wait. If one of the locks is lost, the
lease of the MultiLock is lost.
"""

import gc
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED
from concurrent.futures import wait as wait_for
from typing import Any

import pytest
import redis
import redis.asyncio

from ... import (
    AsyncRedisLock,
    LockBackendError,
    LockLost,
    LockTimeout,
    LossReason,
    MultiLock,
    RedisLock,
    Release,
    client_resources,
    multi_lock,
)
from ...sans_io.protocol import Call, load_script
from ...testing.server import Server, eventually, find_free_port
from ..test_giving_up import Interrupted
from ..waiting import hold_lock, run_in_thread, wait_until_queued
from .lock_factories import AnyLock, LockFactory, make_server_factory, yield_and_close


@pytest.fixture
def factory(server: Server) -> Iterator[LockFactory]:
    """A factory of RedisLocks. MultiLock has no variant for asyncio."""
    yield from yield_and_close(make_server_factory("threads", server.port))


def list_locked(*locks: AnyLock) -> list[bool]:
    """Return whether each of the locks has a holder."""
    return [lock.locked() for lock in locks]


def test_opposite_orders_of_locks_do_not_deadlock(factory: LockFactory) -> None:
    """Two threads need the locks a and b, and list them in opposite orders.

    If each acquired its first lock first, each would wait for the other thread's lock forever.
    """
    a, b = factory.make_lock("a"), factory.make_lock("b")
    with hold_lock(a), hold_lock(b):
        waiters = {run_in_thread(lambda: MultiLock([a, b]).acquire(5))}
        waiters.add(run_in_thread(lambda: MultiLock([b, a]).acquire(5)))
        wait_until_queued(a, 2)
        assert b.inspect().waiters == ()  # MultiLock acquires a before b
    while waiters:
        done, waiters = wait_for(waiters, 5, FIRST_COMPLETED)
        (served_waiter,) = done  # the other waiter waits for the release below
        assert served_waiter.result().release() is Release.RELEASED


def test_timeout_of_one_lock_releases_the_acquired_ones(factory: LockFactory) -> None:
    """The locks a and b are free, and c is taken for longer than the wait."""
    locks = [factory.make_lock(name) for name in "abc"]
    combined_lock: AnyLock = MultiLock(reversed(locks))
    with hold_lock(locks[2]):
        started = time.monotonic()
        with pytest.raises(LockTimeout, match=r"^c: "):
            combined_lock.acquire(0.3)
        assert 0.3 <= time.monotonic() - started < 0.8  # not 0.3 s for each lock
        assert list_locked(*locks) == [False, False, True]
        assert locks[2].inspect().waiters == ()
        assert combined_lock.try_acquire() is None
    lease = combined_lock.try_acquire()  # now all three are free
    assert lease.release() is Release.RELEASED
    assert list_locked(*locks) == [False] * 3


def test_unreachable_server_leaves_no_lock_on_the_others(factory: LockFactory) -> None:
    """The first lock is acquired, and released because the server of the second is unreachable."""
    unreachable_factory = make_server_factory("threads", find_free_port())
    with pytest.raises(LockBackendError):
        MultiLock([factory.make_lock("a"), unreachable_factory.make_lock("b")]).acquire(5)
    assert not factory.make_lock("a").locked()
    unreachable_factory.close()


def test_multi_lease_combines_the_leases_of_its_locks(factory: LockFactory) -> None:
    """The lease of the MultiLock ends with the first of the two leases.

    One of the locks is listed twice, and acquired once.
    """
    locks_with_b_twice = [
        factory.make_lock("b"),
        factory.make_lock("a", ttl=5),
        factory.make_lock("b"),
    ]
    combined_lock: AnyLock = MultiLock(locks_with_b_twice)
    with combined_lock.hold(wait=1) as lease:
        assert [single_lease.name for single_lease in lease.leases] == ["a", "b"]
        first_fences = lease.fences
        assert list(first_fences) == ["a", "b"]
        assert 4 < lease.remaining() <= 5  # the ttl of a; the ttl of b is 10 s
        assert lease.owned()
        lease.extend(60)
        assert lease.remaining() > 50
        lease.check()
        with pytest.raises(NotImplementedError):
            lease.hand_over()
    assert lease.outcome is Release.RELEASED
    with combined_lock.hold(wait=1) as lease:
        assert all(lease.fences[name] > first_fences[name] for name in first_fences)


def test_loss_of_one_lock_is_the_loss_of_the_lease(factory: LockFactory) -> None:
    """The key of one of two locks is deleted. The other one is held until the release."""
    locks = [factory.make_lock(name, ttl=0.6) for name in ("other", "lost")]
    lease = MultiLock(locks).acquire(1)
    factory.admin_client.delete("lock:{lost}")
    eventually(lambda: lease.lost_event.is_set())
    assert (lease.lost, lease.loss, lease.remaining()) == (True, LossReason.GONE, 0)
    with pytest.raises(LockLost):
        lease.check()
    assert locks[0].locked()
    assert lease.release() is Release.EXPIRED
    assert not locks[0].locked()


def test_lock_lost_during_the_wait_for_another_is_noticed(factory: LockFactory) -> None:
    """The lease on the first lock expires while the MultiLock waits for the second lock."""
    expiring_lock, held_lock = factory.make_lock("a", ttl=0.2, renew=False), factory.make_lock("b")
    with hold_lock(held_lock):
        waiter = run_in_thread(lambda: MultiLock([expiring_lock, held_lock]).acquire(10))
        wait_until_queued(held_lock, 1)
        with hold_lock(expiring_lock):  # acquired when the waiter's lease on it has expired
            pass
    with pytest.raises(LockLost, match=r"^a: lost while waiting for other locks"):
        waiter.result(5)
    assert not held_lock.locked()


def test_failed_release_still_releases_the_other_locks(
    factory: LockFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release of the second of three locks raises an exception."""
    locks = [factory.make_lock(name) for name in "abc"]
    lease = MultiLock(locks).acquire(1)
    release = lease.leases[1]._release
    errors = [ZeroDivisionError()]  # raised once

    def fail_once(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return release(*args)

    monkeypatch.setattr(lease.leases[1], "_release", fail_once)
    with pytest.raises(ZeroDivisionError):
        lease.release()
    assert list_locked(locks[0], locks[2]) == [False, False]
    lease.release()  # the second call releases the lock whose release failed
    assert not locks[1].locked()


def test_dropped_multi_lease_is_not_renewed(factory: LockFactory) -> None:
    """The lease is garbage-collected without a release."""
    locks = [factory.make_lock(name, ttl=0.3) for name in ("a", "b")]
    MultiLock(locks).acquire(1)
    gc.collect()
    with MultiLock(locks).hold(wait=5):  # acquired when the dropped leases have expired
        pass


def test_invalid_locks_and_waits_are_refused(factory: LockFactory) -> None:
    """MultiLock refuses an empty list, equal names or keys, locks of asyncio, and invalid waits."""
    with pytest.raises(ValueError, match="got no locks: pass at least one"):
        MultiLock([])
    with pytest.raises(ValueError, match="rename one"):
        MultiLock([factory.make_lock("a"), factory.make_lock("a", key="b")])
    # Two locks with one key: the acquisition of the second would wait for the first forever.
    with pytest.raises(ValueError, match="the same key"):
        MultiLock([factory.make_lock("x", key="k"), factory.make_lock("y", key="k")])
    with pytest.raises(TypeError, match="AsyncRedisLock is not a lock for threads"):
        MultiLock([AsyncRedisLock(redis.asyncio.Redis(), "a", ttl=10)])  # type: ignore[list-item]
    for wait in (-1, float("nan")):
        with pytest.raises(ValueError, match="must be"):
            MultiLock([factory.make_lock("a"), factory.make_lock("b")]).acquire(wait)
    assert not factory.make_lock("a").locked()


def test_nested_multi_locks_are_flattened(client: redis.Redis) -> None:
    """The lock b is in both inner MultiLocks, and is acquired once."""
    a, b, c = (RedisLock(client, name, ttl=10) for name in "abc")
    with MultiLock([MultiLock([b, c]), MultiLock([a, b])]).hold(wait=0.5) as lease:
        assert list(lease.fences) == ["a", "b", "c"]


def test_same_name_with_another_client_is_refused(server: Server, client: redis.Redis) -> None:
    """Locks with one name but two clients may be on different servers, so they are two locks."""
    with pytest.raises(ValueError, match="rename one"):
        MultiLock([RedisLock(client, "a", ttl=10), RedisLock(server.make_client(), "a", ttl=10)])


def test_block_exit_after_a_hand_over_releases_nothing(factory: LockFactory) -> None:
    """Both leases are handed over in the block, so other processes may hold the locks."""
    a, b = factory.make_lock("a"), factory.make_lock("b")
    combined_lock = MultiLock([a, b])
    with combined_lock.hold(wait=1) as lease:
        handovers = [single_lease.hand_over() for single_lease in lease.leases]
    assert lease.outcome is Release.HANDED_OVER
    assert list_locked(a, b) == [True, True]
    for lock, handover in zip((a, b), handovers, strict=True):
        assert lock.adopt(handover).release() is Release.RELEASED


def test_interrupted_wait_releases_the_acquired_locks(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception interrupts the wait for the third lock, after two were acquired.

    Both are released and no longer renewed. (In Redisson's issue 4456 they stayed locked.)
    """
    locks = [RedisLock(client, name, ttl=10) for name in "abc"]

    def interrupt(*_: object) -> None:
        assert list_locked(*locks[:2]) == [True, True]
        raise Interrupted

    with hold_lock(locks[2]):
        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(Interrupted):
            MultiLock(locks).acquire(5)
        assert list_locked(*locks) == [False, False, True]
        assert len(locks[0]._watchdog.renewals) == 1  # the lease of this test on locks[2]


def test_interrupted_release_releases_the_remaining_locks(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception interrupts the release of the first of three locks.

    All three are released and no longer renewed.
    """
    locks = [RedisLock(client, name, ttl=10) for name in "abc"]
    call: Any = RedisLock._call
    interrupts = [Interrupted()]  # raised once

    def interrupt_first_release(lock: AnyLock, command: Call) -> object:
        script, _, _ = command
        if script is load_script("release") and interrupts:
            raise interrupts.pop()
        return call(lock, command)

    lease = MultiLock(locks).acquire(5)
    monkeypatch.setattr(RedisLock, "_call", interrupt_first_release)
    with pytest.raises(Interrupted):
        lease.release()
    assert list_locked(*locks) == [False, False, False]
    assert not locks[0]._watchdog.renewals


def test_wait_applies_to_all_locks_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is 5 s. The first acquisition takes 4 s, and the second 3 s, more than is left."""
    times = iter([100.0, 104.0, 107.0, 108.0])  # the clock is read at the start and after each lock
    monkeypatch.setattr(multi_lock, "now", lambda: next(times))
    locks: Any = ["a", "b", "c"]
    locks_with_time_left: list[Any] = list(multi_lock.iterate_with_time_left(locks, 5.0))
    assert locks_with_time_left == [("a", 5.0), ("b", 1.0), ("c", 0.0)]
    locks_without_limit: list[Any] = list(multi_lock.iterate_with_time_left(locks, None))
    assert locks_without_limit == [("a", None), ("b", None), ("c", None)]
