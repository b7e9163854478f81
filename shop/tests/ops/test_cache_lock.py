"""django-redis's cache.lock() becomes a lock of ours by one setting, REDIS_CLIENT_CLASS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import caches
from pytest_django import Settings

from locks import RedisLock, compat
from locks.testing.server import eventually
from locks.tests.waiting import in_thread


@pytest.fixture
def cache(settings: Settings) -> Iterator[Any]:
    """One that is configured as an application would, at the address of this test's Redis."""
    given: dict[str, Any] = settings.CACHES["default"]
    options = {**given.get("OPTIONS", {}), "REDIS_CLIENT_CLASS": "locks.compat.Redis"}
    settings.CACHES = {**settings.CACHES, "ours": {**given, "OPTIONS": options}}
    yield caches["ours"]
    caches["ours"].clear()


def test_the_setting_makes_cache_lock_a_lock_of_ours(cache: Any) -> None:
    lock: Any = cache.lock("report", timeout=10)
    assert isinstance(lock, compat.Lock)
    with lock:
        assert lock.owned()
        assert lock.lease is not None
        assert lock.lease.fence
        key = cache.make_key("report")
        assert cache.client.get_client().get(key) == lock.local.token
        assert (
            cache.lock("report", timeout=10, blocking_timeout=0.05, sleep=0.01).acquire() is False
        )
    assert not lock.locked()


def test_a_waiter_is_woken_not_polled(cache: Any) -> None:
    lock = cache.lock("woken", timeout=30)
    assert lock.acquire()
    waiting = in_thread(lambda: cache.lock("woken", timeout=30, sleep=20).acquire())
    look = RedisLock(lock.redis, "woken", key=cache.make_key("woken"), ttl=1)
    eventually(lambda: look.inspect().waiters)
    lock.release()
    assert waiting.result(2) is True


def test_it_and_the_cache_lock_of_before_exclude_each_other(cache: Any) -> None:
    """While processes with and without the setting run side by side."""
    unchanged: Any = caches["default"]
    before, after = unchanged.lock("rolled out", timeout=10), cache.lock("rolled out")
    assert type(before) is not type(after)
    for one, other in ((before, after), (after, before)):
        assert one.acquire(blocking=False)
        assert not other.acquire(blocking=False)
        one.release()
