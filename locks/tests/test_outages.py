"""A server, a holder or a waiter that is gone: who learns of it, and when."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
import redis

from .. import LockBackendError, LockLost, RedisLock, Release
from ..errors import LossReason
from ..testing.process import Process as Worker
from ..testing.server import Server, eventually
from .waiting import held, queued, waiter


def test_an_outage_shorter_than_the_lease_loses_nothing(own_server: Server) -> None:
    lock = RedisLock(own_server.client(), "short outage", ttl=1.0)
    lease = lock.acquire(1)
    own_server.signal(signal.SIGSTOP)
    assert not lease.lost_event.wait(0.5)  # the first renewal, at a third, is in vain
    own_server.signal(signal.SIGCONT)
    first = lease.deadline
    eventually(lambda: lease.deadline > first)
    assert lease.release() is Release.RELEASED


def test_an_outage_longer_than_the_lease_is_noticed_before_its_deadline_and_is_survived(
    own_server: Server,
) -> None:
    called: list[float] = []
    lock = RedisLock(
        own_server.client(),
        "long outage",
        ttl=0.6,
        on_lost=lambda lease, loss: called.append(time.monotonic()),
    )
    lease = lock.acquire(1)
    expires = time.monotonic() + 0.6
    own_server.signal(signal.SIGSTOP)
    assert lease.lost_event.wait(2)
    assert time.monotonic() < expires + 0.2
    eventually(lambda: called)
    assert lease.loss is LossReason.EXPIRED
    with pytest.raises(LockLost):
        lease.check()
    own_server.signal(signal.SIGCONT)
    lease.release()
    again = lock.acquire(5)
    assert not again.lost_event.wait(1.0)  # the watchdog renews later leases
    assert again.release() is Release.RELEASED


def test_a_server_that_is_down_is_noticed_at_once_and_costs_no_retries(own_server: Server) -> None:
    lock = RedisLock(own_server.client(), "down", ttl=10)  # redis-py would retry ten times
    lock.acquire(1).release()
    own_server.kill()
    started = time.monotonic()
    with pytest.raises(LockBackendError, match="was not reached"):
        lock.acquire(10)
    assert time.monotonic() - started < 0.5
    own_server.start()
    lock.acquire(1).release()


def test_waiters_learn_at_once_that_the_server_died(own_server: Server) -> None:
    lock = RedisLock(own_server.client(), "died", ttl=30)
    lease = lock.acquire(1)
    other = waiter(lock)
    own_server.kill()
    with pytest.raises(LockBackendError):
        other.result(2)
    assert lease.release() is Release.UNKNOWN


@pytest.mark.parametrize("loss", [LossReason.GONE, LossReason.TAKEN])
def test_a_lock_that_an_administrator_took_away_is_lost_within_a_third_of_the_ttl(
    client: redis.Redis, loss: LossReason
) -> None:
    lease = RedisLock(client, "deleted", ttl=0.6).acquire(1)
    if loss is LossReason.GONE:
        client.delete("lock:{deleted}")
    else:
        client.set("lock:{deleted}", "somebody", px=1000)
    started = time.monotonic()
    assert lease.lost_event.wait(2)
    assert time.monotonic() - started < 0.3
    assert lease.loss is loss
    assert lease.release() is Release.EXPIRED


def test_a_silent_server_does_not_starve_the_renewals_on_another(
    own_server: Server, client: redis.Redis
) -> None:
    silent = RedisLock(own_server.client(), "silent", ttl=3).acquire(1)
    lease = RedisLock(client, "spoken", ttl=0.6).acquire(1)
    own_server.signal(signal.SIGSTOP)
    assert silent.lost_event.wait(5)
    assert not lease.lost
    lease.check()
    assert lease.release() is Release.RELEASED
    own_server.signal(signal.SIGCONT)
    silent.release()


def test_a_fork_does_not_keep_a_dead_waiter_s_subscription_alive(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    lock = RedisLock(client, "orphan", ttl=10)
    head = worker()
    with held(lock) as lease:
        head.send("acquire", name="orphan", ttl=10, wait=30, leave_a_child=True)
        queued(lock, 1)
        second = waiter(lock)
        head.kill()
        started = time.monotonic()
        lease.release()
        second.result(5)
        assert time.monotonic() - started < 1
    second.result().release()


@pytest.mark.parametrize("both", [False, True])
def test_the_next_waiter_follows_a_killed_holder_within_its_ttl(
    client: redis.Redis, worker: Callable[[], Worker], both: bool
) -> None:
    lock = RedisLock(client, "killed", ttl=0.5)
    holder, head = worker(), worker()
    holder.ask("acquire", name="killed", ttl=0.5, wait=1)
    if both:
        head.send("acquire", name="killed", ttl=0.5, wait=30)
        queued(lock, 1)
    other = waiter(lock)
    killed = time.monotonic()
    holder.kill()
    if both:
        head.kill()
    lease = other.result(5)
    assert time.monotonic() - killed < 0.5 + 0.15
    lease.release()
