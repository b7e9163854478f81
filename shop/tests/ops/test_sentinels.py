"""REDIS_SENTINELS: what the settings make of it, what is refused, and whom a process asks."""

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
from shop.tests.node import run

SHOW = """
import django, json
django.setup()
from django.core.checks import run_checks
from django.core.cache import caches
from shop.ops.redis import locks_client
pool, cache = locks_client().connection_pool, caches["default"].client.get_client().connection_pool
def shown(pool):
    given = pool.connection_kwargs
    return [type(pool).__name__, pool.connection_class.__name__, pool.service_name, given["db"],
            given.get("password"), given["retry"].get_retries(), given["socket_timeout"],
            given["socket_connect_timeout"], pool.max_connections]
manager = pool.sentinel_manager
print(json.dumps({
    "locks": shown(pool), "cache": shown(cache), "ids": [m.id for m in run_checks()],
    "sentinels": [[s.connection_pool.connection_kwargs[n] for n in ("host", "port")]
                  for s in manager.sentinels],
    "retries": {s.get_retry().get_retries() for s in manager.sentinels} == {0},
    "timeout": {s.connection_pool.connection_kwargs["socket_timeout"]
                for s in manager.sentinels} == {0.5},
}))
"""


def shown(**environment: str) -> dict[str, Any]:
    done = run("-c", SHOW, DATABASE_URL="postgresql:///x", SHOP_REDIS_TIMEOUT="0.5", **environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_both_caches_find_the_master() -> None:
    """Each uses its own database, without retries."""
    given = shown(
        REDIS_URL="redis://:secret@unused:1/3",
        REDIS_SENTINELS="one:26379, two:26380,[::1]:26381",
        REDIS_SENTINEL_MASTER="Main",
        SHOP_REDIS_POOL="7",
    )
    alike = ["MasterPool", "SentinelManagedConnection", "Main"]
    assert given == {
        "cache": [*alike, 3, "secret", 0, 0.5, 0.5, 7],
        "locks": [*alike, 4, "secret", 0, 0.5, 0.5, 7],
        "ids": [],
        "sentinels": [["one", 26379], ["two", 26380], ["::1", 26381]],
        "retries": True,
        "timeout": True,
    }


def test_locks_in_the_database_of_the_cache_are_an_error() -> None:
    """The hosts are not used: both are the one master's."""
    given = shown(
        REDIS_URL="rediss://one/1", REDIS_LOCKS_URL="rediss://other/1", REDIS_SENTINELS="one:26379"
    )
    assert given["locks"][:3] == ["MasterPool", "SentinelManagedSSLConnection", "shop"]
    assert given["ids"] == ["shop.E003"]


@pytest.mark.parametrize("sentinels", [[], [("one", 26379), ("two", 26379)]])
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_async_lock_finds_the_same_redis(
    settings: Settings, scheme: str, sentinels: list[tuple[str, int]]
) -> None:
    settings.REDIS_SENTINELS, settings.REDIS_SENTINEL_MASTER = sentinels, "Shop"
    settings.REDIS_LOCKS_URL = f"{scheme}://ann:secret@Shop/3"
    client = shop_redis.async_locks_client.__wrapped__()
    pool: Any = client.connection_pool
    given = pool.connection_kwargs
    assert (given["username"], given["password"], given["db"]) == ("ann", "secret", 3)
    assert given["socket_timeout"] == settings.LOCKS_POOL["socket_timeout"]
    assert issubclass(pool.connection_class, SSLConnection) is (scheme == "rediss")
    assert isinstance(pool, AsyncPool) is bool(sentinels)
    if sentinels:
        assert (pool.service_name, len(pool.sentinel_manager.sentinels)) == ("Shop", 2)
    else:
        assert given["host"] == "shop"
    AsyncRedisLock(client, "apple", ttl=1)


@pytest.mark.parametrize(
    "text", ["one", "one:", ":26379", "one:x", "one:0", "one:65536", "one:1,", "redis://one:1", ","]
)
def test_a_list_that_cannot_be_read_says_how_to_write_it(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="write host:port,host:port,host:port"):
        parse_sentinels(text)


def test_what_cannot_be_their_master_stops_the_shop_before_it_opens() -> None:
    given = {"REDIS_SENTINELS": "one:26379", "REDIS_URL": "unix:///run/redis.sock"}
    done = run("-m", "django", "check", **given)
    assert done.returncode == 1
    assert "write redis:// or rediss://" in done.stderr


def test_a_replica_that_answers_for_the_master_is_not_ready(settings: Settings) -> None:
    """It answers reads, and would refuse every lock."""
    assert health._redis().endswith("noeviction")
    settings.REDIS_SENTINELS = [("one", 26379)]
    assert health._redis().endswith("master 'shop' of the Sentinels")
    client = locks_client()
    client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(LookupError, match="wait for the end of the failover"):
            health._redis()
    finally:
        client.replicaof("NO", "ONE")


@pytest.mark.parametrize(("kind", "left"), [(SentinelConnectionPool, 2), (MasterPool, 3)])
def test_threads_that_ask_at_once_forget_no_sentinel(
    kind: type[SentinelConnectionPool], left: int
) -> None:
    """redis-py's own pool does: of a, b, c remain b, b, c, and a is never asked again."""
    both_are_there = threading.Barrier(2, timeout=10)
    manager: Any = Sentinel([("a", 1), ("b", 2), ("c", 3)])
    a, b, c = manager.sentinels

    def does_not_answer() -> None:
        raise redis.ConnectionError

    def answers() -> dict[str, Any]:
        both_are_there.wait()
        state = {"ip": "127.0.0.1", "port": 6379, "is_master": True, "num-other-sentinels": 2}
        return {"shop": {**state, "is_sdown": False, "is_odown": False}}

    a.sentinel_masters, b.sentinel_masters = does_not_answer, answers
    pool = kind("shop", manager)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(pool.get_master_address) for _ in range(2)]
        assert [each.result(10) for each in asked] == [("127.0.0.1", 6379)] * 2
    assert len({id(each) for each in manager.sentinels}) == left
    assert manager.sentinels[0] is b, "the one that answers is asked first"
    assert c in manager.sentinels
