"""Tests of the queue: its order, its wake-ups, and waits that end on time."""

import threading
import time
from typing import Any

import pytest
import redis

from .. import LockTimeout, RedisLock, Release, client_resources
from ..testing.server import Server
from .waiting import StartWorker, hold_lock, run_in_thread, start_waiter, wait_until_queued


def test_newcomer_does_not_overtake_the_queue_of_an_expired_lock(
    client: redis.Redis, lock: RedisLock
) -> None:
    """The lease has expired and a waiter is queued. The waiter gets the lock, not the newcomer."""
    with hold_lock(lock) as lease:
        waiter = start_waiter(lock)
        client.delete("lock:{tested}")  # as if the holder's lease had ended
        assert lock.try_acquire() is None  # the newcomer
        assert waiter.result(1).fence > (lease.fence or 0)  # type: ignore[operator]
    waiter.result().release()


def test_wait_ends_on_time_under_contention(lock: RedisLock) -> None:
    """A wait of 0.3 s ends after 0.3 s, although four threads acquire and release the lock."""
    should_stop = threading.Event()

    def acquire_repeatedly() -> None:
        while not should_stop.is_set():
            with lock.hold(wait=10):
                should_stop.wait(0.005)

    with hold_lock(lock):
        competitors = [run_in_thread(acquire_repeatedly) for _ in range(4)]
        wait_until_queued(lock, 4)
        started = time.monotonic()
        with pytest.raises(LockTimeout):
            lock.acquire(0.3)
        assert 0.3 <= time.monotonic() - started < 0.6
        should_stop.set()
    for competitor in competitors:
        competitor.result(5)
    lock.acquire(0.3).release()  # the queue is empty again


def test_keys_of_the_queue_outlive_the_lease_and_expire(
    client: redis.Redis, lock: RedisLock
) -> None:
    """The keys expire 60 s after the end of the lease, which here lasts for at most 30 s."""
    with hold_lock(lock):
        waiter = start_waiter(lock)
        second_waiter = start_waiter(lock)
        for key in ("lock:{tested}:places", "lock:{tested}:waiting"):
            assert 30_000 < client.pttl(key) <= 90_000
    waiter.result(5).release()
    second_waiter.result(5).release()


def test_waiter_without_a_wake_up_takes_a_free_lock_at_timeout(
    client: redis.Redis, lock: RedisLock
) -> None:
    """A waiter that was not woken tries once more when its wait ends, and acquires the lock."""
    with hold_lock(lock):
        waiter = start_waiter(lock, wait=0.2)
        client.delete(*lock.keys[:3])  # the lock and its queue: nothing will wake the waiter
        assert waiter.result(5).waited_seconds >= 0.2
    waiter.result().release()


def test_wait_can_exceed_the_socket_timeout(server: Server) -> None:
    """The client's socket_timeout is 0.2 s. Waits of 0.7 s end with a timeout or with a lease."""
    impatient_client = server.make_client(socket_timeout=0.2)
    lock = RedisLock(impatient_client, "long", ttl=10)
    with hold_lock(lock):
        waiter = start_waiter(lock)
        with pytest.raises(LockTimeout):
            lock.acquire(0.7)
    lease = waiter.result(5)
    assert lease.waited_seconds >= 0.7
    lease.release()


def test_waiters_beyond_the_pool_need_no_connection(server: Server) -> None:
    """The client's pool has two connections, both in use. Twelve waiters are still served."""
    client = server.make_client(max_connections=2)
    lock = RedisLock(client, "few", ttl=10)
    pubsub: Any = client.pubsub
    subscribers = [pubsub() for _ in range(2)]
    for subscriber in subscribers:
        subscriber.subscribe("any")  # takes a connection out of the pool
    with hold_lock(lock):
        waiters = [start_waiter(lock) for _ in range(12)]
    for waiter in waiters:
        waiter.result(5).release()
    for subscriber in subscribers:
        subscriber.close()


@pytest.mark.parametrize("kills_first_waiter", [False, True])
def test_next_waiter_follows_a_killed_holder_within_its_ttl(
    client: redis.Redis, start_worker: StartWorker, kills_first_waiter: bool
) -> None:
    """The next waiter has the lock when the ttl of the killed holder ends.

    With `kills_first_waiter` another waiter, which came first, is killed together with the holder.
    """
    lock = RedisLock(client, "killed", ttl=0.5)
    holder, first_waiter = start_worker(), start_worker()
    holder.run("acquire", name="killed", ttl=0.5, wait=1)
    if kills_first_waiter:
        first_waiter.send("acquire", name="killed", ttl=0.5, wait=30)
        wait_until_queued(lock, 1)
    waiter = start_waiter(lock)
    killed_at = time.monotonic()
    holder.kill()
    if kills_first_waiter:
        first_waiter.kill()
    lease = waiter.result(5)
    assert time.monotonic() - killed_at < 0.5 + 0.15  # the ttl, and tolerance
    lease.release()


def test_release_between_the_try_and_the_sleep_is_not_missed(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiter's try fails, then the lock is released, and then the waiter begins to sleep.

    The waiter is woken at once although it did not sleep yet when the lock was released.
    """
    is_about_to_sleep = threading.Event()
    may_sleep = threading.Event()
    sleep = client_resources._sleep

    def sleep_later(*args: object) -> object:
        is_about_to_sleep.set()
        may_sleep.wait(5)
        return sleep(*args)  # type: ignore[arg-type]

    with hold_lock(lock) as lease:
        monkeypatch.setattr(client_resources, "_sleep", sleep_later)
        waiter = run_in_thread(lambda: lock.acquire(20))
        is_about_to_sleep.wait(5)
        lease.release()
        may_sleep.set()
        started = time.monotonic()
        waiter.result(5).release()
    assert time.monotonic() - started < 0.5


def test_late_wake_up_does_not_release_a_held_lease(client: redis.Redis, lock: RedisLock) -> None:
    """A lease is held, and its wake-up is published once more. The lease is still held.

    (The process releases a lease that is granted to a waiter which has given up.)
    """
    with hold_lock(lock) as first_lease:
        waiter = start_waiter(lock)
    lease = waiter.result(5)
    client.publish(lock._wakeups.waiters.channel, "not a wake-up")  # it is ignored
    # A wake-up in the format of hand_over.lua: token, fence and clock.
    client.publish(lock._wakeups.waiters.channel, f"{lease.token} {lease.fence} {lease.fence}")
    # Wait until the process has read both messages: it reads the wake-up of a later waiter on the
    # same channel after them.
    with hold_lock(RedisLock(client, "later", ttl=10)):
        later_waiter = start_waiter(RedisLock(client, "later", ttl=10))
    later_waiter.result(5).release()
    assert lock.inspect().owner == lease.token
    assert first_lease.outcome is Release.RELEASED
    lease.release()
