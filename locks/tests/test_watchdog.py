"""Tests of the watchdog, the thread that renews the leases."""

import threading
import time

import pytest
import redis

from .. import Metrics, RedisLock, Release, connection, watchdog
from ..testing.server import eventually
from ..watchdog import Watchdog
from .waiting import StartWorker, hold_lock


def test_renewal_during_the_release_loses_no_lease(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal reaches the server after the release. The lock is free, but that is no loss."""
    lock = RedisLock(client, "crossing", ttl=0.3)
    lease = lock.acquire(1)
    was_released = threading.Event()
    run_scripts = connection.run_scripts

    def release_and_renew(*args: object) -> list[object]:
        if not was_released.is_set():
            assert lease.release() is Release.RELEASED
            was_released.set()
        return run_scripts(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(watchdog, "run_scripts", release_and_renew)
    assert was_released.wait(2)
    with hold_lock(lock):  # until the watchdog has renewed leases once more
        assert not lease.lost_event.wait(0.2)
    assert lease.loss is None
    assert lock._watchdog.renewals == {}


def test_thousand_leases_cost_one_thread(client: redis.Redis) -> None:
    """The thread of the watchdog renews all thousand leases."""
    # Wait until the threads of earlier tests have ended.
    eventually(lambda: "locks.on_lost" not in [thread.name for thread in threading.enumerate()])
    threads_before = set(threading.enumerate())
    leases = [RedisLock(client, f"one of many {n}", ttl=3).acquire(1) for n in range(1000)]
    assert not leases[-1].lost_event.wait(1.5)  # half of the ttl
    new_threads = set(threading.enumerate()) - threads_before
    assert [thread.name for thread in new_threads] == ["locks.watchdog"]
    # A lease that was not renewed would have at most 1.5 s left.
    assert all(lease.remaining() > 1.6 for lease in leases)
    for lease in leases:
        assert lease.release() is Release.RELEASED


def test_forked_child_renews_only_its_own_leases(
    client: redis.Redis, start_worker: StartWorker
) -> None:
    """A forked child cannot use its parent's lease, but can acquire and renew its own lease."""
    parent = start_worker()
    lease = parent.run("acquire", name="parent's", ttl=1.5, wait=1)
    report = parent.run("use_lease_in_child", name="child's")
    assert report == {
        "check": "LockNotHeld",
        "release": "LockNotHeld",
        "connection differs": True,
        "new lease was renewed": True,
        "new release": "released",
    }
    assert RedisLock(client, "parent's", ttl=10).inspect().owner == lease["token"]
    assert parent.run("check") == "held"
    assert parent.run("release") == "released"


def test_unexpected_error_does_not_end_the_watchdog(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first attempt to renew raises an unexpected exception. The lease is still renewed."""
    has_failed = threading.Event()
    renew_due = Watchdog._renew_due

    def fail_once(watchdog: Watchdog) -> None:
        if not has_failed.is_set():
            has_failed.set()
            raise ZeroDivisionError
        renew_due(watchdog)

    monkeypatch.setattr(Watchdog, "_renew_due", fail_once)
    lock = RedisLock(client, "survived", ttl=0.3)
    with hold_lock(lock) as lease:
        assert has_failed.wait(2)
        assert not lease.lost_event.wait(0.6)
        lease.check()
    assert "tries again" in caplog.text


def test_short_holds_do_not_wake_the_watchdog(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that is released long before its first renewal does not wake the watchdog."""
    wake_up_count = 0
    wake = Watchdog._wake

    def count_and_wake(watchdog: Watchdog) -> None:
        nonlocal wake_up_count
        wake_up_count += 1
        wake(watchdog)

    monkeypatch.setattr(Watchdog, "_wake", count_and_wake)
    for _ in range(500):
        with lock.hold(wait=1):
            pass
    # The first acquisitions wake the watchdog, until its thread has begun to run.
    assert wake_up_count < 50


def test_extended_lease_notices_its_loss_in_time(client: redis.Redis) -> None:
    """A lease is extended to 15 s, and the lock is released by force. The next renewal notices."""
    renewal = threading.Event()

    class RenewalMetrics(Metrics):
        def renewed(self, name: str, seconds: float) -> None:
            renewal.set()

    lock = RedisLock(client, "extended and lost", ttl=0.6, metrics=RenewalMetrics())
    with hold_lock(lock) as lease:
        lease.extend(15)
        renewal.clear()
        assert renewal.wait(5)
        assert lock.force_release()
        released_at = time.monotonic()
        assert lease.lost_event.wait(5)
        assert time.monotonic() - released_at < 0.6  # the next renewal comes within the ttl
