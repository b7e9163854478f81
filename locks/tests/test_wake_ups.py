"""Wake-ups: who cannot be woken is passed over, and a broken subscription is replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import redis

from .. import RedisLock, Release, shared
from ..testing.process import Process as Worker
from .waiting import held, in_thread, queued, waiter


def test_a_release_between_the_try_and_the_sleep_is_not_missed(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RedisLock(client, "lost wake-up", ttl=30)
    reached, go_on = threading.Event(), threading.Event()
    sleep = shared._sleep

    def slow(*args: object) -> object:
        reached.set()
        go_on.wait(5)
        return sleep(*args)  # type: ignore[arg-type]

    with held(lock) as lease:
        monkeypatch.setattr(shared, "_sleep", slow)
        other = in_thread(lambda: lock.acquire(20))
        reached.wait(5)
        lease.release()
        go_on.set()
        woken = time.monotonic()
        other.result(5).release()
    assert time.monotonic() - woken < 0.5


def test_a_killed_head_waiter_costs_the_next_one_nothing(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    lock = RedisLock(client, "dead head", ttl=10)
    head = worker()
    with held(lock) as lease:
        head.send("acquire", name="dead head", ttl=10, wait=30)
        queued(lock, 1)
        second = waiter(lock)
        head.kill()
        released = time.monotonic()
        lease.release()
        second.result(5)
        assert time.monotonic() - released < 1
    second.result().release()


def test_a_release_while_the_subscription_is_broken_wastes_no_lease(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ..wakeups import WakeUps

    lock = RedisLock(client, "deaf for a while", ttl=30)
    broken, go_on = threading.Event(), threading.Event()
    listen = WakeUps.listen

    def late(self: WakeUps, until: float) -> None:
        if not self.waiters.listening:
            broken.set()
            go_on.wait(5)
        listen(self, until)

    with held(lock) as lease:
        other = waiter(lock)
        monkeypatch.setattr(WakeUps, "listen", late)
        client.client_kill_filter(_type="pubsub")
        assert broken.wait(5)
        lease.release()  # given to nobody: the waiter's channel has no receiver
        assert not lock.locked()
        go_on.set()
        other.result(5).release()


def test_a_wake_up_for_a_lease_that_is_held_already_does_not_release_it(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "late wake", ttl=10)
    with held(lock) as first:
        other = waiter(lock)
    lease = other.result(5)
    client.publish(lock._wakeups.waiters.channel, "noise")
    client.publish(lock._wakeups.waiters.channel, f"{lease.token} {lease.fence} {lease.fence}")
    with held(RedisLock(client, "after it", ttl=10)):
        barrier = waiter(RedisLock(client, "after it", ttl=10))
    barrier.result(5).release()  # its wake-up was read after the one above
    assert lock.inspect().owner == lease.token
    assert first.outcome is Release.RELEASED
    lease.release()
