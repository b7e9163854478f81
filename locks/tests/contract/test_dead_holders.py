"""Tests that a waiter gets the lock within the ttl of a holder that died.

In place of a dead holder the tests have a lease that is neither renewed nor released.
"""

import threading

from ... import LockTimeout, RedisLock, Release
from ...sans_io.protocol import derive_keys
from ..waiting import run_in_thread, start_waiter, wait_until_queued
from .lock_factories import LockFactory


def test_waiter_outlives_a_holder_that_died_after_an_extension(factory: LockFactory) -> None:
    """The first holder extends its lease to 60 s and releases it. The next holder dies.

    The waiter must not sleep for 60 s, but poll when the ttl of 1 s of the dead holder is over.
    """
    lock = factory.make_lock("extended", ttl=1)
    lease = lock.acquire(5)
    lease.extend(60)
    dead_holder = start_waiter(RedisLock(factory.admin_client, "extended", ttl=1, renew=False))
    living_waiter = start_waiter(lock, wait=60)
    lease.release()
    dead_holder.result(5)
    assert living_waiter.result(10).release() is Release.RELEASED


def test_waiters_are_served_although_newcomers_keep_coming(factory: LockFactory) -> None:
    """The keys of the lock and its queue are deleted while four threads wait.

    Then other threads of the process acquire and release the lock all the time. The old waiters
    still get it.
    """
    lock = factory.make_lock("deleted", ttl=1, renew=False)
    lock.acquire(5)  # the dead holder

    def acquire_and_release() -> None:
        lock.acquire(wait=60).release()

    old_waiters = [run_in_thread(acquire_and_release) for _ in range(4)]
    wait_until_queued(lock, len(old_waiters))
    should_stop = threading.Event()

    def acquire_repeatedly() -> None:
        while not should_stop.is_set():
            try:
                with lock.hold(wait=5):
                    should_stop.wait(0.02)
            except LockTimeout:
                pass

    for key in derive_keys("deleted"):
        factory.admin_client.delete(key)
    newcomers = [run_in_thread(acquire_repeatedly) for _ in range(3)]
    try:
        for old_waiter in old_waiters:
            old_waiter.result(10)
    finally:
        should_stop.set()
    for newcomer in newcomers:
        newcomer.result(20)


def test_dead_adopter_blocks_waiters_for_its_ttl_only(factory: LockFactory) -> None:
    """The adopted lease lasts for the adopter's ttl of 1 s, not for the 60 s of hand_over()."""
    lock = factory.make_lock("handed", ttl=1)
    # As if the adopter had died, its lease is neither renewed nor released.
    adopting_lock = RedisLock(factory.admin_client, "handed", ttl=1, renew=False)
    adopting_lock.adopt(lock.acquire(5).hand_over(within=60))
    assert factory.admin_client.pttl("lock:{handed}") <= 1000
    assert start_waiter(lock, wait=60).result(10).release() is Release.RELEASED
