"""The watchdog, which renews the leases in a single thread."""

import threading
import time

import pytest
import redis

from .. import Metrics, RedisLock, Release, connection, watchdog
from ..testing.server import eventually
from ..watchdog import Watchdog
from .waiting import StartWorker, held


def test_renewal_during_the_release_loses_no_lease(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RedisLock(client, "crossing", ttl=0.3)
    lease = lock.acquire(1)
    crossed = threading.Event()
    exchange = connection.exchange

    def release_first(*args: object) -> list[object]:
        if not crossed.is_set():
            assert lease.release() is Release.RELEASED
            crossed.set()
        return exchange(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(watchdog, "exchange", release_first)
    assert crossed.wait(2)
    with held(lock):  # for at least one round of the watchdog
        assert not lease.lost_event.wait(0.2)
    assert lease.loss is None
    assert lock._watchdog.renewals == {}


def test_thousand_leases_cost_one_thread(client: redis.Redis) -> None:
    eventually(lambda: not [t for t in threading.enumerate() if t.name == "locks.on_lost"])
    before = set(threading.enumerate())
    leases = [RedisLock(client, f"one of many {n}", ttl=3).acquire(1) for n in range(1000)]
    assert not leases[-1].lost_event.wait(1.5)  # all have been renewed once
    assert [t.name for t in set(threading.enumerate()) - before] == ["locks.watchdog"]
    assert all(lease.remaining() > 1.6 for lease in leases)
    for lease in leases:
        assert lease.release() is Release.RELEASED


def test_forked_child_renews_only_its_own_leases(
    client: redis.Redis, start_worker: StartWorker
) -> None:
    parent = start_worker()
    lease = parent.ask("acquire", name="parent's", ttl=1.5, wait=1)
    answer = parent.ask("use_lease_in_child", name="child's")
    assert answer == {
        "check": "LockNotHeld",
        "release": "LockNotHeld",
        "has own connection": True,
        "own lease lasted": True,
        "own release": "released",
    }
    assert RedisLock(client, "parent's", ttl=10).inspect().owner == lease["token"]
    assert parent.ask("check") == "held"
    assert parent.ask("release") == "released"


def test_unexpected_error_does_not_end_the_watchdog(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has_failed = threading.Event()
    renew_due = Watchdog._renew_due

    def fail(watchdog: Watchdog) -> None:
        if not has_failed.is_set():
            has_failed.set()
            raise ZeroDivisionError
        renew_due(watchdog)

    monkeypatch.setattr(Watchdog, "_renew_due", fail)
    lock = RedisLock(client, "survived", ttl=0.3)
    with held(lock) as lease:
        assert has_failed.wait(2)
        assert not lease.lost_event.wait(0.6)
        lease.check()
    assert "tries again" in caplog.text


def test_short_holds_do_not_wake_the_watchdog(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wake_ups: list[int] = []
    wake = Watchdog._wake

    def count(watchdog: Watchdog) -> None:
        wake_ups.append(1)
        wake(watchdog)

    monkeypatch.setattr(Watchdog, "_wake", count)
    for _ in range(500):
        with lock.hold(wait=1):
            pass
    # Once, and once more for each acquisition until the watchdog's thread has the processor.
    assert len(wake_ups) < 50


def test_extended_lease_notices_its_loss_in_time(client: redis.Redis) -> None:
    """Renewals continue after an extension, so check() does not pass until the far deadline."""
    renewed = threading.Event()

    class RenewalMetrics(Metrics):
        def renewed(self, name: str, seconds: float) -> None:
            renewed.set()

    lock = RedisLock(client, "extended and lost", ttl=0.6, metrics=RenewalMetrics())
    with held(lock) as lease:
        lease.extend(15)
        renewed.clear()
        assert renewed.wait(5)
        assert lock.force_release()
        released_at = time.monotonic()
        assert lease.lost_event.wait(5)
        assert time.monotonic() - released_at < 0.6
