"""Every branch of every script of the articles' locks."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from ...classic.scripts import script

LOCK = "lock:42"
CHANNEL = "channel:42"


def run(
    client: redis.Redis, name: str, *args: str | int, keys: tuple[str, ...] = (LOCK,)
) -> object:
    answer: object = script(name)(client, list(keys), list(args))
    return answer


def near(pttl: object, ttl: int) -> bool:
    assert isinstance(pttl, int)
    return ttl - 2000 < pttl <= ttl


def test_setnx_expire_takes_a_free_lock_and_gives_it_a_ttl(client: redis.Redis) -> None:
    assert run(client, "setnx_expire", "ours", 9000) == 1
    assert client.get(LOCK) == b"ours"
    assert near(client.pttl(LOCK), 9000)


def test_setnx_expire_leaves_a_taken_lock_as_it_is(client: redis.Redis) -> None:
    client.set(LOCK, "theirs", px=30_000)
    assert run(client, "setnx_expire", "ours", 9000) == 0
    assert client.get(LOCK) == b"theirs"
    assert near(client.pttl(LOCK), 30_000)


def test_setnx_expire_as_printed_in_the_article_does_not_compile(client: redis.Redis) -> None:
    printed = (
        "if redis.call('setnx',KEYS[1],ARGV[1]) == 1 then"
        "redis.call('expire',KEYS[1],ARGV[2]) return 1 else return 0 end"
    )
    with pytest.raises(redis.ResponseError, match="'then' expected"):
        client.eval(printed, 1, LOCK, "ours", 9)


@pytest.mark.parametrize(
    ("holder", "answer", "left"),
    [("ours", 1, None), ("theirs", 0, b"theirs"), (None, 0, None)],
)
def test_compare_and_delete_deletes_what_is_ours_only(
    holder: str | None, answer: int, left: bytes | None, client: redis.Redis
) -> None:
    if holder:
        client.set(LOCK, holder)
    assert run(client, "compare_and_delete", "ours") == answer
    assert client.get(LOCK) == left


@pytest.mark.parametrize(
    ("holder", "answer", "ttl"), [("ours", 1, 30_000), ("theirs", 0, 9000), (None, 0, None)]
)
def test_compare_and_expire_renews_what_is_ours_only(
    holder: str | None, answer: int, ttl: int | None, client: redis.Redis
) -> None:
    if holder:
        client.set(LOCK, holder, px=9000)
    assert run(client, "compare_and_expire", "ours", 30_000) == answer
    assert client.pttl(LOCK) == -2 if ttl is None else near(client.pttl(LOCK), ttl)


def held(client: redis.Redis, owner: str, count: int) -> None:
    client.hset(LOCK, owner, count)
    client.pexpire(LOCK, 9000)


def test_reentrant_acquire_takes_a_free_lock(client: redis.Redis) -> None:
    assert run(client, "reentrant_acquire", 30_000, "ours") is None
    assert client.hgetall(LOCK) == {b"ours": b"1"}
    assert near(client.pttl(LOCK), 30_000)


def test_reentrant_acquire_counts_another_hold_of_the_owner_and_renews(client: redis.Redis) -> None:
    held(client, "ours", 1)
    assert run(client, "reentrant_acquire", 30_000, "ours") is None
    assert client.hgetall(LOCK) == {b"ours": b"2"}
    assert near(client.pttl(LOCK), 30_000)


def test_reentrant_acquire_returns_how_long_another_s_lease_lasts(
    client: redis.Redis,
) -> None:
    held(client, "theirs", 1)
    assert near(run(client, "reentrant_acquire", 30_000, "ours"), 9000)
    assert client.hgetall(LOCK) == {b"theirs": b"1"}


@pytest.mark.parametrize(
    ("owner", "count", "answer", "left", "messages"),
    [
        (None, 0, None, {}, 0),
        ("theirs", 1, None, {b"theirs": b"1"}, 0),
        ("ours", 2, 0, {b"ours": b"1"}, 0),
        ("ours", 1, 1, {}, 1),
    ],
)
def test_reentrant_release_counts_down_and_publishes_the_last_unlock_only(
    owner: str | None,
    count: int,
    answer: int | None,
    left: dict[bytes, bytes],
    messages: int,
    client: redis.Redis,
) -> None:
    if owner:
        held(client, owner, count)
    pubsub: Any = client.pubsub  # redis-py has no type for it
    with pubsub(ignore_subscribe_messages=True) as waiter:
        waiter.subscribe(CHANNEL)
        waiter.get_message(timeout=1)  # the confirmation
        keys = (LOCK, CHANNEL)
        assert run(client, "reentrant_release", 0, 30_000, "ours", keys=keys) == answer
        client.publish(CHANNEL, "end")
        received: list[object] = []
        while not received or received[-1] != b"end":
            message = waiter.get_message(timeout=1)
            assert message is not None
            received.append(message["data"])
    assert received[:-1] == [b"0"] * messages
    assert client.hgetall(LOCK) == left
    if answer == 0:
        assert near(client.pttl(LOCK), 30_000)


@pytest.mark.parametrize(
    ("owner", "answer", "ttl"), [("ours", 1, 30_000), ("theirs", 0, 9000), (None, 0, None)]
)
def test_reentrant_renew_renews_what_is_ours_only(
    owner: str | None, answer: int, ttl: int | None, client: redis.Redis
) -> None:
    if owner:
        held(client, owner, 1)
    assert run(client, "reentrant_renew", 30_000, "ours") == answer
    assert client.pttl(LOCK) == -2 if ttl is None else near(client.pttl(LOCK), ttl)
