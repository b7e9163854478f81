"""django-redis's cache.lock() becomes a lock of ours by one setting, REDIS_CLIENT_CLASS."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import caches
from pytest_django import Settings

from locks import compat


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
