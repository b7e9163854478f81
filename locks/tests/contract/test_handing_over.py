"""Extend, verify, hand over and adopt, through each door."""

from __future__ import annotations

import pytest

from ... import LockLost, LockNotHeld, LossReason, RedisLock, Release, compat
from ..waiting import waiter
from .doors import Door


def test_a_lease_is_extended_and_its_renewals_do_not_shorten_it(door: Door) -> None:
    lease = door.lock("extended", ttl=0.6).acquire(5)
    lease.extend(30)
    assert 29 < lease.remaining() < 30
    assert door.admin.pttl("lock:{extended}") > 29_000
    assert lease.owned()
    assert lease.release() is Release.RELEASED
    with pytest.raises(LockNotHeld):
        lease.extend(1)


def test_a_lock_that_is_gone_is_not_owned_and_cannot_be_extended(door: Door) -> None:
    lease = door.lock("gone").acquire(5)
    door.admin.delete("lock:{gone}")
    assert not lease.owned()
    for _ in range(2):
        with pytest.raises(LockLost):
            lease.extend(30)
        assert lease.loss is LossReason.GONE
    with pytest.raises(ValueError, match="more than 0"), door.lock("gone").hold(wait=1) as other:
        other.extend(0)


def test_a_lease_goes_to_another_holder_who_alone_renews_it(door: Door) -> None:
    lock = door.lock("handed", ttl=0.6)
    lease = lock.acquire(5)
    handed = lease.hand_over(within=30)
    assert lease.outcome is Release.HANDED_OVER
    with pytest.raises(LockNotHeld, match="handed over"):
        lease.release()
    other = RedisLock(door.admin, "handed", ttl=0.6)  # to a thread and back
    taken = other.adopt(handed)
    assert taken.fence == lease.fence
    with pytest.raises(LockLost, match="adopted before"):
        lock.adopt(handed)
    mine = lock.adopt(taken.hand_over())
    assert lock.inspect().owner == mine.token
    assert not lease.lost
    mine.check()
    assert mine.release() is Release.RELEASED
    assert not lock.locked()


@pytest.mark.parametrize("key", ["report", "a{b}c"])
def test_a_key_of_another_program_s_making_is_locked_for_it_too(door: Door, key: str) -> None:
    lock = door.lock("report", key=key)
    old = door.admin.lock(key, timeout=10)
    first = lock.acquire(5)
    assert not old.acquire(blocking=False)
    other = waiter(lock)
    assert lock.adopt(first.hand_over()).release() is Release.RELEASED
    assert other.result(5).release() is Release.RELEASED
    assert old.acquire(blocking=False)
    assert lock.try_acquire() is None
    old.release()
    with door.admin.lock(key, timeout=10, lock_class=compat.Lock) as new:
        assert not old.acquire(blocking=False)
        assert new.owned()
