"""The setting REDIS_SENTINELS: its clients, its bad values, and how a client finds the master."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings
from redis.asyncio import SSLConnection
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncPool
from redis.sentinel import Sentinel, SentinelConnectionPool

from locks import AsyncRedisLock
from shop.ops import health
from shop.ops import redis as shop_redis
from shop.ops.environment import parse_sentinels
from shop.ops.redis import MasterPool, locks_client
from shop.tests.node import run_python

#: Prints the options of the clients for the locks, for the cache and for each Sentinel.
PRINT_CLIENTS = """
import django, json
django.setup()
from django.core.checks import run_checks
from django.core.cache import caches
from shop.ops.redis import locks_client
def describe(pool):
    options = pool.connection_kwargs
    return {
        "pool class": type(pool).__name__,
        "connection class": pool.connection_class.__name__,
        "master": pool.service_name,
        "database": options["db"],
        "password": options.get("password"),
        "retries": options["retry"].get_retries(),
        "timeout": options["socket_timeout"],
        "connect timeout": options["socket_connect_timeout"],
        "connections": pool.max_connections,
    }
def describe_sentinel(sentinel):
    options = sentinel.connection_pool.connection_kwargs
    return {
        "address": [options["host"], options["port"]],
        "retries": sentinel.get_retry().get_retries(),
        "timeout": options["socket_timeout"],
    }
locks_pool = locks_client().connection_pool
print(json.dumps({
    "locks": describe(locks_pool),
    "cache": describe(caches["default"].client.get_client().connection_pool),
    "check ids": [message.id for message in run_checks()],
    "sentinels": [
        describe_sentinel(sentinel) for sentinel in locks_pool.sentinel_manager.sentinels
    ],
}))
"""


def describe_clients(**environment: str) -> dict[str, Any]:
    """Return a description of the Redis clients in a new process with these variables.

    It is the output of PRINT_CLIENTS.
    """
    completed = run_python(
        "-c", PRINT_CLIENTS, DATABASE_URL="postgresql:///x", SHOP_REDIS_TIMEOUT="0.5", **environment
    )
    assert completed.returncode == 0, completed.stderr
    return dict(json.loads(completed.stdout))


def test_both_caches_find_the_master() -> None:
    """With REDIS_SENTINELS, the clients for the cache and for the locks find the master.

    They use different databases of the master, and do not retry.
    """
    description = describe_clients(
        REDIS_URL="redis://:secret@unused:1/3",
        REDIS_SENTINELS="one:26379, two:26380,[::1]:26381",
        REDIS_SENTINEL_MASTER="Main",
        WEB_THREADS="40",
    )
    common_fields = {
        "pool class": "MasterPool",
        "connection class": "SentinelManagedConnection",
        "master": "Main",
        "password": "secret",
        "retries": 0,
        "timeout": 0.5,
        "connect timeout": 0.5,
        "connections": 130,  # 2 for each of WEB_THREADS, and 50
    }
    addresses = [["one", 26379], ["two", 26380], ["::1", 26381]]
    assert description == {
        "cache": {**common_fields, "database": 3},
        "locks": {**common_fields, "database": 4},
        "check ids": [],
        "sentinels": [{"address": address, "retries": 0, "timeout": 0.5} for address in addresses],
    }


def test_one_database_for_locks_and_cache_is_an_error() -> None:
    """With REDIS_SENTINELS, URLs with the same database number are an error (E003).

    The hosts of the URLs are ignored: the cache and the locks are both on the master.
    """
    description = describe_clients(
        REDIS_URL="rediss://one/1", REDIS_LOCKS_URL="rediss://other/1", REDIS_SENTINELS="one:26379"
    )
    assert description["locks"]["pool class"] == "MasterPool"
    assert description["locks"]["connection class"] == "SentinelManagedSSLConnection"
    assert description["locks"]["master"] == "shop"
    assert description["check ids"] == ["shop.E003"]


@pytest.mark.parametrize("sentinels", [[], [("one", 26379), ("two", 26379)]])
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_async_locks_client_follows_the_settings(
    settings: Settings, scheme: str, sentinels: list[tuple[str, int]]
) -> None:
    """The client of the async locks uses REDIS_LOCKS_URL; with Sentinels, it finds the master."""
    settings.REDIS_SENTINELS = sentinels
    settings.REDIS_SENTINEL_MASTER = "Shop"
    settings.REDIS_LOCKS_URL = f"{scheme}://ann:secret@Shop/3"
    client = shop_redis.async_locks_client.__wrapped__()  # a new client, not a cached one
    pool: Any = client.connection_pool
    options = pool.connection_kwargs
    assert (options["username"], options["password"], options["db"]) == ("ann", "secret", 3)
    assert options["socket_timeout"] == settings.LOCKS_POOL["socket_timeout"]
    assert issubclass(pool.connection_class, SSLConnection) == (scheme == "rediss")
    if sentinels:
        assert isinstance(pool, AsyncPool)
        assert pool.service_name == "Shop"
        assert len(pool.sentinel_manager.sentinels) == 2
    else:
        assert not isinstance(pool, AsyncPool)
        assert options["host"] == "shop"  # redis-py writes the host of a URL in lower case
    AsyncRedisLock(client, "apple", ttl=1)  # raises if the lock cannot use such a client


def test_async_client_does_not_retry_a_sentinel(settings: Settings) -> None:
    """The async client tries each Sentinel once, without retries.

    With redis-py's default of ten retries, a lookup of the master would take 4 s longer if the
    first Sentinel is down.
    """
    settings.REDIS_SENTINELS = [("one", 26379), ("two", 26379)]
    pool: Any = shop_redis.async_locks_client.__wrapped__().connection_pool
    for sentinel in pool.sentinel_manager.sentinels:
        assert sentinel.get_retry().get_retries() == 0
        assert sentinel.connection_pool.make_connection().retry.get_retries() == 0


@pytest.mark.parametrize(
    "text", ["one", "one:", ":26379", "one:x", "one:0", "one:65536", "one:1,", "redis://one:1", ","]
)
def test_malformed_list_is_refused_with_the_format(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="write host:port,host:port,host:port"):
        parse_sentinels(text)


def test_sentinels_with_a_socket_url_are_refused() -> None:
    completed = run_python(
        "-m",
        "django",
        "check",
        REDIS_SENTINELS="one:26379",
        REDIS_URL="unix:///run/redis.sock",
    )
    assert completed.returncode == 1
    assert "write redis:// or rediss://" in completed.stderr


def test_redis_check_fails_on_a_replica(settings: Settings) -> None:
    """The readiness check of Redis fails on a replica, which refuses the writes of a lock."""
    assert health._describe_redis().endswith("noeviction")
    settings.REDIS_SENTINELS = [("one", 26379)]
    assert health._describe_redis().endswith("master 'shop' of the Sentinels")
    client = locks_client()
    client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(LookupError, match="wait for the end of the failover"):
            health._describe_redis()
    finally:
        client.replicaof("NO", "ONE")


@pytest.mark.parametrize(
    ("pool_class", "sentinel_count"), [(SentinelConnectionPool, 2), (MasterPool, 3)]
)
def test_only_master_pool_keeps_all_sentinels_in_concurrent_lookups(
    pool_class: type[SentinelConnectionPool], sentinel_count: int
) -> None:
    """MasterPool keeps all three Sentinels, even if two threads look for the master concurrently.

    The Sentinel `a` does not answer, `b` does. redis-py then moves `b` to the front of its list. If
    two threads do so in the same list, the list a, b, c becomes b, b, c, without `a`.
    """
    lookup_barrier = threading.Barrier(2, timeout=10)
    manager: Any = Sentinel([("a", 1), ("b", 2), ("c", 3)])
    a, b, c = manager.sentinels

    def raise_connection_error() -> None:
        raise redis.ConnectionError

    def answer() -> dict[str, Any]:
        lookup_barrier.wait()
        master = {"ip": "127.0.0.1", "port": 6379, "is_master": True, "num-other-sentinels": 2}
        return {"shop": {**master, "is_sdown": False, "is_odown": False}}

    a.sentinel_masters = raise_connection_error
    b.sentinel_masters = answer
    pool = pool_class("shop", manager)
    with ThreadPoolExecutor(2) as threads:
        lookups = [threads.submit(pool.get_master_address) for _ in range(2)]
        assert [lookup.result(10) for lookup in lookups] == [("127.0.0.1", 6379)] * 2
    assert len({id(sentinel) for sentinel in manager.sentinels}) == sentinel_count
    assert manager.sentinels[0] is b, "the Sentinel that answered should be the first in the list"
    assert c in manager.sentinels
