"""A key of another program's making, redis-py's for one, on a cluster."""

from __future__ import annotations

import pytest
import redis

from ... import RedisLock, Release, compat
from ...cluster.slots import slot_of, tag_of
from ...testing.cluster import Cluster
from ..waiting import waiter


@pytest.mark.parametrize("key", ["report", "a{b}c", "two words", "{}odd", "odd}"])
def test_the_slot_and_a_channel_s_tag_are_found_for_any_key(key: str) -> None:
    from redis.crc import key_slot

    assert slot_of(key.encode()) == key_slot(key.encode())
    tag = tag_of(key.encode())
    assert key_slot(tag) == key_slot(key.encode())
    assert not set(b" }") & set(tag[1:-1])


@pytest.mark.parametrize("key", ["report", "a{b}c"])
def test_a_lock_with_a_given_key_waits_hands_over_and_is_adopted_on_a_cluster(
    cluster: Cluster, key: str
) -> None:
    with redis.RedisCluster(host="127.0.0.1", port=cluster.port) as client:
        lock = RedisLock(client, key, key=key, ttl=10)
        old = client.lock(key, timeout=10)
        first = lock.acquire(5)
        assert not old.acquire(blocking=False)
        other = waiter(lock)
        adopted = lock.adopt(first.hand_over())
        adopted.extend(30)
        assert adopted.owned()
        assert adopted.release() is Release.RELEASED
        assert other.result(5).release() is Release.RELEASED
        with client.lock(key, timeout=10, lock_class=compat.Lock) as new:
            assert not old.acquire(blocking=False)
            assert new.owned()
        assert old.acquire(blocking=False)
        old.release()
