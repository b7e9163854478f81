"""Tokens that the user chose may be those of several locks at once."""

from __future__ import annotations

import pytest
import redis
import redis.asyncio

from .. import RedisLock, Release, compat
from ..testing.server import eventually


def test_two_locks_with_one_token_are_both_renewed(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first is free after its ttl, another takes it, and its holder is told nothing."""
    monkeypatch.setattr(compat.Lock, "ttl", 0.6)
    locks = [compat.Lock(client, name) for name in "AB"]
    for lock in locks:
        assert lock.acquire(token="job-17")
    leases = [lock.lease for lock in locks]
    for lease in leases:
        assert lease is not None
        assert not lease.lost_event.wait(1.0)
    locks[1].release()
    assert leases[0] is not None
    assert not leases[0].lost_event.wait(1.0)  # and the release of one ends no renewal of the other
    assert client.get("A") == b"job-17"
    locks[0].release()
    assert not locks[0]._lock._watchdog.renewals


def test_a_timed_lock_with_the_token_of_an_endless_one_leaves_it_alone(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat.Lock, "ttl", 0.6)
    endless, timed = compat.Lock(client, "A"), compat.Lock(client, "B", timeout=5)
    assert endless.acquire(token="job-17")
    assert timed.acquire(token="job-17")
    assert endless.lease is not None
    assert not endless.lease.lost_event.wait(1.0)
    for lock in (endless, timed):
        lock.release()


def test_adopted_leases_with_one_token_are_both_renewed_and_released(client: redis.Redis) -> None:
    locks = [RedisLock(client, name, ttl=0.6) for name in ("adopted A", "adopted B")]
    leases = [lock.adopt(lock.acquire(1).hand_over(), token="t") for lock in locks]
    for lease in leases:
        assert not lease.lost_event.wait(0.8)
    assert [lease.release() for lease in leases] == [Release.RELEASED] * 2
    eventually(lambda: not any(lock.locked() for lock in locks))
