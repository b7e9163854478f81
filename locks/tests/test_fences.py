"""Fences rise whatever happens, and whoever was paused knows that its lease is over."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis

from .. import RedisLock
from ..testing.process import Process as Worker
from ..testing.server import eventually
from .waiting import held, waiter


def test_a_fence_has_all_its_digits(client: redis.Redis) -> None:
    lock = RedisLock(client, "digits", ttl=10)
    client.set("lock:{digits}:fence", 2**52 + 1, px=60_000)
    with held(lock) as lease:
        assert lease.fence == 2**52 + 2
        other = waiter(lock)
        assert client.get("lock:{digits}:fence") == b"%d" % (2**52 + 2)
    assert other.result(5).fence == 2**52 + 3
    other.result().release()


def test_a_paused_holder_knows_when_it_wakes_that_its_lease_is_over(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    lock = RedisLock(client, "paused holder", ttl=10)
    holder = worker()
    stale = holder.ask("acquire", name="paused holder", ttl=0.3, wait=1)
    holder.pause()
    with held(lock) as lease:
        assert lease.fence is not None
        assert lease.fence > stale["fence"]
        holder.resume()
        assert holder.ask("check") == "LockLost"
        assert holder.ask("release") == "expired"
        assert lock.inspect().owner == lease.token


def test_a_waiter_that_was_paused_past_its_lease_does_not_believe_in_it(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    lock = RedisLock(client, "paused waiter", ttl=10)
    sleeper = worker()
    with held(lock):
        sleeper.send("acquire", name="paused waiter", ttl=0.3, wait=30)
        eventually(lambda: len(lock.inspect().waiters) == 1)
        sleeper.pause()
    handed = lock.inspect()
    assert handed.owner is not None
    with held(lock) as lease:  # once the sleeper's lease has ended
        sleeper.resume()
        eventually(lambda: lock.inspect().waiters == (handed.owner,))  # it asked, and queues again
        assert lock.inspect().owner == lease.token
    got = sleeper.answer()
    assert got["fence"] > (lease.fence or 0)
    assert sleeper.ask("release") == "released"


def test_a_fence_is_remembered_for_its_time_after_the_last_use_and_not_after_the_grant(
    client: redis.Redis,
) -> None:
    """The last fence may be ahead of the server's clock, after a failover say: it must not fall."""
    lock = RedisLock(client, "long held", ttl=0.3, fence_ttl=0.3)
    ahead = int(time.time() * 1e6) + 3_600_000_000
    client.set("lock:{long held}:fence", ahead)
    with lock.hold(wait=1) as lease:
        assert lease.fence == ahead + 1
        assert not lease.lost_event.wait(1.0)
        lease.extend(1.0)
        assert client.pttl("lock:{long held}:fence") > 1000
    with lock.hold(wait=1) as lease:
        assert lease.fence == ahead + 2
