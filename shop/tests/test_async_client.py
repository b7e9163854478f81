"""Where AsyncRedisLock finds its Redis: where RedisLock finds it."""

from __future__ import annotations

import pytest
from pytest_django import Settings
from redis.asyncio import SSLConnection
from redis.asyncio.sentinel import SentinelConnectionPool

from locks import AsyncRedisLock
from shop.ops import redis as shop_redis


def test_by_its_url_with_the_timeouts_of_the_locks(settings: Settings) -> None:
    settings.REDIS_LOCKS_URL = "rediss://ann:secret@cache:6380/3"
    client = shop_redis.async_locks_client.__wrapped__()
    given = client.connection_pool.connection_kwargs
    assert (given["host"], given["port"], given["db"]) == ("cache", 6380, 3)
    assert (given["username"], given["password"]) == ("ann", "secret")
    assert given["socket_timeout"] == settings.LOCKS_POOL["socket_timeout"]
    assert client.connection_pool.connection_class is SSLConnection
    AsyncRedisLock(client, "apple", ttl=1)


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_through_the_sentinels_with_user_database_and_tls_of_its_url(
    settings: Settings, scheme: str
) -> None:
    settings.REDIS_SENTINELS = [("one", 26379), ("two", 26379)]
    settings.REDIS_SENTINEL_MASTER = "Shop"
    settings.REDIS_LOCKS_URL = f"{scheme}://ann:secret@Shop/3"
    client = shop_redis.async_locks_client.__wrapped__()
    pool = client.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "Shop"
    given = pool.connection_kwargs
    assert (given["username"], given["password"], given["db"]) == ("ann", "secret", 3)
    assert issubclass(pool.connection_class, SSLConnection) is (scheme == "rediss")
    assert len(pool.sentinel_manager.sentinels) == 2
    AsyncRedisLock(client, "apple", ttl=1)
