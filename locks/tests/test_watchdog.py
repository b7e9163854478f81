"""The watchdog: it renews what lives, and costs one thread; the hooks are called."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from .. import Lease, Metrics, RedisLock, Release, connection
from ..errors import LossReason
from ..renewals import Renewal
from ..testing.process import Process as Worker
from ..testing.server import eventually
from ..watchdog import Watchdog
from .waiting import held, in_thread


def test_a_lock_is_kept_for_more_than_three_leases_while_its_holder_lives(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "kept", ttl=0.3)
    with held(lock) as lease:
        assert not lease.lost_event.wait(1.0)
        lease.check()
        assert lock.inspect().owner == lease.token


def test_a_lease_is_not_renewed_past_max_hold(client: redis.Redis) -> None:
    lock = RedisLock(client, "bounded", ttl=0.2, max_hold=0.5)
    lease = lock.acquire(1)
    assert lease.lost_event.wait(2)
    assert lease.loss is LossReason.MAX_HOLD
    assert 0.5 <= lease.held_seconds < 0.8
    assert in_thread(lambda: lock.acquire(1)).result(2).release() is Release.RELEASED
    assert lease.release() is Release.EXPIRED


def test_a_lease_that_is_not_to_be_renewed_ends_with_its_ttl(client: redis.Redis) -> None:
    lease = RedisLock(client, "once", ttl=0.3, renew=False).acquire(1)
    assert lease.lost_event.wait(2)
    assert lease.loss is LossReason.EXPIRED
    assert 0.2 <= lease.held_seconds < 0.6
    lease.release()


def test_nothing_is_renewed_after_its_release(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from .. import lock as module

    class Eager(Renewal):
        """Due at once, so that the watchdog renews while we release."""

        def __init__(self, lease: Lease, **rest: Any) -> None:
            super().__init__(lease, **rest)
            self.due = 0.0

    monkeypatch.setattr(module, "Renewal", Eager)
    lock = RedisLock(client, "loop", ttl=10)
    for turn in range(1500):
        try:
            with lock.hold(wait=1) as lease:
                if turn % 3 == 0:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        assert (lease.outcome, lease.loss) == (Release.RELEASED, None)
    assert lock._watchdog.renewals == {}
    assert not lock.locked()


def test_a_renewal_that_meets_its_release_loses_no_lease(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from .. import watchdog as module

    lock = RedisLock(client, "crossing", ttl=0.3)
    lease = lock.acquire(1)
    crossed = threading.Event()
    call_all = connection.call_all

    def release_first(*args: object) -> list[object]:
        if not crossed.is_set():
            assert lease.release() is Release.RELEASED
            crossed.set()
        return call_all(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "call_all", release_first)
    assert crossed.wait(2)
    with held(lock):  # a round of the watchdog later
        assert not lease.lost_event.wait(0.2)
    assert lease.loss is None


def test_a_thousand_leases_cost_one_thread(client: redis.Redis) -> None:
    eventually(lambda: not [t for t in threading.enumerate() if t.name == "locks.on_lost"])
    before = set(threading.enumerate())
    leases = [RedisLock(client, f"one of many {n}", ttl=3).acquire(1) for n in range(1000)]
    assert not leases[-1].lost_event.wait(1.5)  # all have been renewed once
    assert [t.name for t in set(threading.enumerate()) - before] == ["locks.watchdog"]
    assert all(lease.remaining() > 1.6 for lease in leases)
    for lease in leases:
        assert lease.release() is Release.RELEASED


def test_a_forgotten_lease_is_not_renewed(
    client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    lock = RedisLock(client, "forgotten", ttl=0.3)
    with caplog.at_level(logging.WARNING):
        lock.acquire(1)
        gc.collect()
        started = time.monotonic()
        with held(lock):
            assert time.monotonic() - started < 0.6
    assert "dropped without release" in caplog.text


def test_a_forked_child_neither_renews_nor_releases_and_renews_its_own(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    parent = worker()
    lease = parent.ask("acquire", name="parent's", ttl=1.5, wait=1)
    found = parent.ask("fork", name="child's")
    assert found == {
        "check": "LockNotHeld",
        "release": "LockNotHeld",
        "own connection": True,
        "kept": True,
        "own": "released",
    }
    assert RedisLock(client, "parent's", ttl=10).inspect().owner == lease["token"]
    assert parent.ask("check") == "held"
    assert parent.ask("release") == "released"


def test_an_error_of_its_own_does_not_end_the_watchdog(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = threading.Event()
    look = Watchdog._look

    def fail(watchdog: Watchdog) -> None:
        if not broken.is_set():
            broken.set()
            raise ZeroDivisionError
        look(watchdog)

    monkeypatch.setattr(Watchdog, "_look", fail)
    lock = RedisLock(client, "survived", ttl=0.3)
    with held(lock) as lease:
        assert broken.wait(2)
        assert not lease.lost_event.wait(0.6)
        lease.check()
    assert "goes on" in caplog.text


class Counting(Metrics):
    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def waited(self, name: str, seconds: float, acquired: bool) -> None:
        self.seen.append(("waited", name, acquired))

    def held(self, name: str, seconds: float, outcome: Release) -> None:
        self.seen.append(("held", name, outcome))

    def renewed(self, name: str, seconds: float) -> None:
        self.seen.append(("renewed", name))

    def lost(self, name: str, loss: LossReason) -> None:
        self.seen.append(("lost", name, loss))
        raise ZeroDivisionError


def test_the_hooks_are_called_in_every_phase_and_may_fail(client: redis.Redis) -> None:
    hooks = Counting()
    lock = RedisLock(client, "counted", ttl=0.3, metrics=hooks)
    with held(lock):
        assert lock.try_acquire() is None
        eventually(lambda: ("renewed", "counted") in hooks.seen)
        client.delete("lock:{counted}")
        eventually(lambda: ("lost", "counted", LossReason.GONE) in hooks.seen)
    assert hooks.seen[0] == ("waited", "counted", True)
    assert hooks.seen[1] == ("waited", "counted", False)
    assert hooks.seen[-1] == ("held", "counted", Release.EXPIRED)


def test_a_stream_of_short_holds_does_not_wake_the_watchdog(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    wake = Watchdog._wake

    def count(watchdog: Watchdog) -> None:
        woken.append(1)
        wake(watchdog)

    monkeypatch.setattr(Watchdog, "_wake", count)
    lock = RedisLock(client, "stream", ttl=10)
    for _ in range(500):
        with lock.hold(wait=1):
            pass
    # Once; and while the thread has not got the processor yet, by each who came meanwhile.
    assert len(woken) < 50


def test_an_extended_lease_notices_its_loss_as_soon_as_any_other(client: redis.Redis) -> None:
    """Not two thirds of a ttl before its far deadline: check() would pass for all that time."""
    renewed = threading.Event()

    class Renewed(Metrics):
        def renewed(self, name: str, seconds: float) -> None:
            renewed.set()

    lock = RedisLock(client, "extended and lost", ttl=0.6, metrics=Renewed())
    with held(lock) as lease:
        lease.extend(15)
        renewed.clear()
        assert renewed.wait(5)
        assert lock.force_release()
        taken = time.monotonic()
        assert lease.lost_event.wait(5)
        assert time.monotonic() - taken < 0.6
