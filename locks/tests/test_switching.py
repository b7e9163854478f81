"""Each step of FROM_REDIS_PY.md, with its old and new lock contending, and traps of the switch."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from .. import MultiLock, RedisLock, compat
from ..sans_io.protocol import derive_keys
from ..testing.server import Server
from .waiting import run_in_thread, start_waiter

#: A function that returns a block in which a lock is held.
Block = Callable[[], AbstractContextManager[Any]]

#: The name of redis-py's lock, and its key.
NAME = "report"


def redis_py(client: redis.Redis) -> Block:
    """Return the block before the first step. The functions below are the steps of the page."""
    return lambda: client.lock(NAME, timeout=10, sleep=0.01)


def step_1(client: redis.Redis) -> Block:
    return lambda: client.lock(NAME, timeout=10, lock_class=compat.Lock)


def step_2(client: redis.Redis) -> Block:
    return partial(RedisLock(client, NAME, key=NAME, ttl=10).hold, wait=60)


def step_3(client: redis.Redis) -> Block:
    locks = [RedisLock(client, NAME, key=NAME, ttl=10), RedisLock(client, "report 2", ttl=10)]
    return partial(MultiLock(locks).hold, wait=60)


def step_4(client: redis.Redis) -> Block:
    return partial(RedisLock(client, "report 2", ttl=10).hold, wait=60)


@pytest.mark.parametrize(
    ("before", "after"), [(redis_py, step_1), (step_1, step_2), (step_2, step_3), (step_3, step_4)]
)
def test_old_and_new_locks_exclude_each_other(
    server: Server, before: Callable[..., Block], after: Callable[..., Block]
) -> None:
    """During a roll-out both steps of the switch from redis-py's lock are in use.

    Each of them waits for the other, and acquires the lock after the other's release.
    """
    for step_of_holder, step_of_waiter in ((before, after), (after, before)):
        with step_of_holder(server.make_client())():
            waiter = run_in_thread(partial(_hold_once, step_of_waiter(server.make_client())))
            with pytest.raises(TimeoutError):
                waiter.result(0.15)
        waiter.result(5)


def _hold_once(block: Block) -> None:
    with block():
        pass


@pytest.mark.parametrize("token", [None, "17-3", "2026-11", "job-17"])
@pytest.mark.parametrize("timeout", [60, None])
def test_waiter_soon_notices_the_release_of_an_old_lock(
    client: redis.Redis, timeout: float | None, token: str | None
) -> None:
    """The release by redis-py's lock wakes no waiter, so the waiter must poll.

    The key that it saw had a minute left, or no ttl. A waiter recognizes a RedisLock by its token,
    which begins with a process id. Some of the tokens here begin with a number, too.
    """
    old_lock = client.lock(NAME, timeout=timeout)
    assert old_lock.acquire(token=token)
    new_lock = RedisLock(client, NAME, key=NAME, ttl=30)
    waiter = start_waiter(new_lock)
    old_lock.release()
    released_at = time.monotonic()
    waiter.result(5).release()
    assert time.monotonic() - released_at < 1


def test_waiters_of_a_new_lock_do_not_poll(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RedisLock is held, whose release wakes the waiter. That of redis-py's lock would not."""
    lock = RedisLock(client, NAME, key=NAME, ttl=30)
    lease = lock.acquire(1)
    waiter = start_waiter(lock)
    calls: list[object] = []
    monkeypatch.setattr(lock._connections, "call", lambda *call, **_: calls.append(call))
    with pytest.raises(TimeoutError):
        waiter.result(0.5)
    assert calls == []
    monkeypatch.undo()
    lease.release()
    waiter.result(5).release()


def test_undecodable_owner_can_be_inspected(client: redis.Redis) -> None:
    """Another program has set a value that is not UTF-8."""
    client.set(NAME, b"\xff\xfe", px=10_000)
    inspection = RedisLock(client, NAME, key=NAME, ttl=1).inspect()
    assert inspection.owner == r"\xff\xfe"


def test_keys_derived_from_a_key_are_unique_and_in_its_slot() -> None:
    """A lock has four keys. They are derived from its name, or from a key that is given."""
    names = ["report", "a{b}c", "x{b}c", "{b}", "b", "{{b}", "a{b", "%7Bb", "b}key", "b:key"]
    all_keys: set[bytes] = set()
    for name in names:
        keys_from_key = derive_keys("", name.encode())
        assert keys_from_key[0] == name.encode()
        keys_from_name = derive_keys(name)
        assert not all_keys & {*keys_from_key, *keys_from_name}
        all_keys |= {*keys_from_key, *keys_from_name}
    # Four keys derived from each name as the key, and four from the name.
    assert len(all_keys) == (4 + 4) * len(names)
    assert all(key.startswith(b"lock:{") for key in all_keys if key.decode() not in names)
    for name in names:
        if "}" in name and "{" not in name:
            continue  # no other key in a cluster has the slot of such a key
        slots = {key_slot(key) for key in derive_keys("", name.encode())}
        assert len(slots) == 1, name


@pytest.mark.parametrize("name", ["report", "a{b}c", "%7B"])
def test_key_of_a_named_lock_gives_the_same_four_keys(name: str) -> None:
    """A lock with this name and a lock with this key need one common queue and one fence."""
    keys = derive_keys(name)
    assert derive_keys("renamed", keys[0]) == keys
