"""With the setting REDIS_CLIENT_CLASS, django-redis's cache.lock() returns a locks.compat.Lock."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import caches
from pytest_django import Settings

from locks import compat


@pytest.fixture
def cache(settings: Settings) -> Iterator[Any]:
    """A Django cache with REDIS_CLIENT_CLASS, in the same Redis database as the shop's cache."""
    default: dict[str, Any] = settings.CACHES["default"]
    options = {**default.get("OPTIONS", {}), "REDIS_CLIENT_CLASS": "locks.compat.Redis"}
    settings.CACHES = {**settings.CACHES, "cache-of-test": {**default, "OPTIONS": options}}
    yield caches["cache-of-test"]
    caches["cache-of-test"].clear()


def test_cache_lock_is_a_lock_of_this_project(cache: Any) -> None:
    """cache.lock() returns a lock with redis-py's interface, whose lease has a fence.

    A fence is a number that increases with each acquisition. While the lock is held, its key has
    the holder's token, and a second lock cannot be acquired.
    """
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
