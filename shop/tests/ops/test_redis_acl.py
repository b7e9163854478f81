"""redis.production.acl on a real Valkey: the lock, the limiter and /readyz work, and nothing
else does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.retry import Retry

from servers import embedded
from shop.tests.least_privilege import GuardedValkey
from shop.tests.node import Node, new_database
from shop.tests.ops.test_roles import consumer_of
from shop.tests.rush import rush


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedValkey]:
    server = GuardedValkey(tmp_path_factory.mktemp("valkey"), acl="production")
    embedded.adopt(server.start())
    yield server
    server.stop()


@pytest.fixture
def shop(valkey: GuardedValkey) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(f"{valkey.url}/1", retry=Retry(NoBackoff(), 0)) as client:
        yield client


def test_a_command_that_no_sale_needs_is_refused(shop: redis.Redis) -> None:
    for command in (
        *("KEYS *", "SCAN 0", "FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "RENAME lock:a lock:b"),
        *("CONFIG SET maxmemory 1", "CONFIG GET requirepass", "ACL LIST", "ACL SETUSER shop +@all"),
        *("CLIENT KILL TYPE normal", "CLIENT LIST", "SHUTDOWN NOSAVE", "REPLICAOF 127.0.0.1 1"),
        *("SCRIPT FLUSH", "SCRIPT KILL", "FUNCTION FLUSH", "MODULE LIST", "MONITOR", "SAVE"),
        *("PSUBSCRIBE *", "PUBSUB CHANNELS", "GETSET lock:a b"),
    ):
        with pytest.raises(NoPermissionError):
            shop.execute_command(*command.split())


def test_a_foreign_key_or_channel_is_refused_also_to_a_script(shop: redis.Redis) -> None:
    for command in (
        *("GET secret", "SET lockpick 1", "DEL stock:{1}", "GET page:steps"),
        *("SUBSCRIBE __keyspace@0__:lock", "SUBSCRIBE lock:awake", "PUBLISH lock:elsewhere x"),
        "EVAL return(redis.call('get','secret')) 0",
        "EVAL return(redis.call('get',KEYS[1])) 1 secret",
        "EVAL return(redis.call('flushall')) 0",
    ):
        with pytest.raises(redis.ResponseError, match=r"(?i)permission|acl"):
            shop.execute_command(*command.split())


@pytest.mark.parametrize("login", ["", "default:", "shop:wrong", "health:any"])
def test_nobody_else_may_do_anything_but_the_health_check_may_ping(
    login: str, valkey: GuardedValkey
) -> None:
    url = (
        f"redis://{login}@127.0.0.1:{valkey.port}" if login else f"redis://127.0.0.1:{valkey.port}"
    )
    with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as client:
        if login.startswith("health"):
            assert client.ping()
        with pytest.raises((AuthenticationError, NoPermissionError)):
            client.get("lock:a")


def node_with(redis_url: str, folder: Path, **more: str) -> Node:
    """A node whose database is a superuser's: the roles have tests of their own."""
    redis_url = f"{redis_url}/0"
    log = folder / "log"
    return Node(log, database_url=new_database(), redis_url=redis_url, environment=more)


def test_the_lock_the_limiter_and_readyz_work(valkey: GuardedValkey, tmp_path: Path) -> None:
    with node_with(valkey.url, tmp_path, BUY_RATE_LIMIT="1000/10s") as node:
        parts = node.get("/readyz")[1]["parts"]
        assert [part for part in parts if not part["ok"]] == []
        assert rush(node, "redis") == (5, 0)
    assert "NOPERM" not in node.log.read_text()


def test_reservations_and_their_consumer_work_under_an_acl_of_their_own(tmp_path: Path) -> None:
    server = GuardedValkey(tmp_path / "valkey", acl="reserve")
    embedded.adopt(server.start())
    try:
        given = {"SHOP_DEMO": "0", "SHOP_LOCK": "reserve", "METRICS_TOKEN": "m" * 32}
        with node_with(server.url, tmp_path, **given) as node, consumer_of(node):
            assert rush(node, "reserve") == (5, 0)
            parts = {part["name"]: part["ok"] for part in node.get("/readyz")[1]["parts"]}
            assert parts["promises"] is True
    finally:
        server.stop()
    assert "permission" not in node.log.read_text().lower()
