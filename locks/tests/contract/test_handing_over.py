"""Tests of lease.extend(), owned() and hand_over(), and of lock.adopt(), for each kind of lock."""

import threading

import pytest

from ... import LockLost, LockNotHeld, LossReason, Metrics, RedisLock, Release, compat
from ..waiting import start_waiter
from .lock_factories import LockFactory


def test_extended_lease_is_never_shortened(factory: LockFactory) -> None:
    """Neither a renewal by the ttl of 0.6 s nor a shorter extension moves the deadline back."""
    renewal = threading.Event()

    class RenewalMetrics(Metrics):
        def renewed(self, name: str, seconds: float) -> None:
            renewal.set()

    lease = factory.make_lock("extended", ttl=0.6, metrics=RenewalMetrics()).acquire(5)
    lease.extend(30)
    assert 29 < lease.remaining() < 30
    renewal.clear()
    assert renewal.wait(5)  # a renewal after the extension
    lease.extend(1)
    assert 28 < lease.remaining() < 30
    assert factory.admin_client.pttl("lock:{extended}") > 28_000
    assert lease.owned()
    assert lease.release() is Release.RELEASED
    with pytest.raises(LockNotHeld):
        lease.extend(1)


def test_only_the_adopter_renews_a_handed_over_lease(factory: LockFactory) -> None:
    """After hand_over() the first holder neither renews nor releases the lease.

    One adoption succeeds, and a second one is refused. The adopter can hand the lease back.
    """
    lock = factory.make_lock("handed", ttl=0.3)
    with lock.hold(wait=5) as lease:
        handover = lease.hand_over(within=30)
        assert factory.admin_client.pttl("lock:{handed}") > 29_000
        with pytest.raises(LockNotHeld, match="handed over"):
            lease.check()
    assert lease.outcome is Release.HANDED_OVER
    assert lock.inspect().owner == lease.token  # the end of the block released nothing
    # A lock of another client adopts the lease.
    adopted_lease = RedisLock(factory.admin_client, "handed", ttl=0.3).adopt(handover)
    assert adopted_lease.fence == lease.fence
    with pytest.raises(LockLost, match="adopted before"):
        lock.adopt(handover)
    waiter = start_waiter(lock)
    assert not adopted_lease.lost_event.wait(0.6)  # two ttls, so it is renewed
    assert not lease.lost
    assert not waiter.done()
    returned_lease = lock.adopt(adopted_lease.hand_over())
    assert lock.inspect().owner == returned_lease.token
    returned_lease.check()
    assert returned_lease.release() is Release.RELEASED
    assert waiter.result(5).fence > lease.fence
    waiter.result().release()


def test_deleted_lock_is_not_owned_and_cannot_be_extended(factory: LockFactory) -> None:
    """The key of a held lock is deleted."""
    lease = factory.make_lock("gone").acquire(5)
    factory.admin_client.delete("lock:{gone}")
    assert not lease.owned()
    for _ in range(2):  # the first call notices the loss, and the second call knows it
        with pytest.raises(LockLost):
            lease.extend(30)
        assert lease.loss is LossReason.GONE


def test_extension_by_zero_seconds_is_refused(factory: LockFactory) -> None:
    with (
        pytest.raises(ValueError, match="a positive number"),
        factory.make_lock("extended").hold(wait=1) as lease,
    ):
        lease.extend(0)


@pytest.mark.parametrize("key", ["report", "a{b}c"])
def test_lock_excludes_redis_py_lock_with_the_same_key(factory: LockFactory, key: str) -> None:
    """Another program uses redis-py's Lock, whose key is its name. Our lock has the same key."""
    lock = factory.make_lock("report", key=key)
    redis_py_lock = factory.admin_client.lock(key, timeout=10)
    lease = lock.acquire(5)
    assert not redis_py_lock.acquire(blocking=False)
    # A lock with the same name and another key is free.
    with factory.make_lock("report", key="another").hold(wait=0):
        assert not redis_py_lock.acquire(blocking=False)
    # Hand-overs and waiters work with this key as well.
    waiter = start_waiter(lock)
    assert lock.adopt(lease.hand_over()).release() is Release.RELEASED
    assert waiter.result(5).release() is Release.RELEASED
    # The other way round: redis-py's Lock and compat.Lock exclude our lock and each other.
    assert redis_py_lock.acquire(blocking=False)
    assert lock.try_acquire() is None
    redis_py_lock.release()
    with factory.admin_client.lock(key, timeout=10, lock_class=compat.Lock) as compat_lock:
        assert not redis_py_lock.acquire(blocking=False)
        assert compat_lock.owned()
