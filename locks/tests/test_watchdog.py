"""The watchdog, which renews the leases in a single thread."""

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
    """The renewal reaches the server after the release. Its reply tells that the lock is free."""
    lock = RedisLock(client, "crossing", ttl=0.3)
    lease = lock.acquire(1)
    release_event = threading.Event()
    run_scripts = connection.run_scripts

    def release_and_renew(*args: object) -> list[object]:
        if not release_event.is_set():
            assert lease.release() is Release.RELEASED
            release_event.set()
        return run_scripts(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(watchdog, "run_scripts", release_and_renew)
    assert release_event.wait(2)
    with hold_lock(lock):  # for at least one round of the watchdog
        assert not lease.lost_event.wait(0.2)
    assert lease.loss is None
    assert lock._watchdog.renewals == {}


def test_thousand_leases_cost_one_thread(client: redis.Redis) -> None:
    """The watchdog's thread renews all of them."""
    # The threads of earlier tests have ended.
    eventually(lambda: "locks.on_lost" not in [thread.name for thread in threading.enumerate()])
    threads_before = set(threading.enumerate())
    leases = [RedisLock(client, f"one of many {n}", ttl=3).acquire(1) for n in range(1000)]
    assert not leases[-1].lost_event.wait(1.5)  # all have been renewed once
    new_threads = set(threading.enumerate()) - threads_before
    assert [thread.name for thread in new_threads] == ["locks.watchdog"]
    assert all(lease.remaining() > 1.6 for lease in leases)  # at most 1.5 if not renewed
    for lease in leases:
        assert lease.release() is Release.RELEASED


def test_forked_child_renews_only_its_own_leases(
    client: redis.Redis, start_worker: StartWorker
) -> None:
    """A child cannot use its parent's lease, but a lease that it acquires itself."""
    parent = start_worker()
    lease = parent.run("acquire", name="parent's", ttl=1.5, wait=1)
    answer = parent.run("use_lease_in_child", name="child's")
    assert answer == {
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
    """The lease is renewed although the first round of renewals raised an error."""
    failure = threading.Event()
    renew_due = Watchdog._renew_due

    def fail_once(watchdog: Watchdog) -> None:
        if not failure.is_set():
            failure.set()
            raise ZeroDivisionError
        renew_due(watchdog)

    monkeypatch.setattr(Watchdog, "_renew_due", fail_once)
    lock = RedisLock(client, "survived", ttl=0.3)
    with hold_lock(lock) as lease:
        assert failure.wait(2)
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
    # Acquisitions wake the watchdog until its thread runs for the first time.
    assert wake_up_count < 50


def test_extended_lease_notices_its_loss_in_time(client: redis.Redis) -> None:
    """A renewal notices the loss long before the deadline that the extension set."""
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
        assert time.monotonic() - released_at < 0.6
