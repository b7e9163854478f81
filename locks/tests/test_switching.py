"""Tests of the switch from redis-py's Lock to RedisLock in steps, as in FROM_REDIS_PY.md.

In each step the old and the new lock must exclude each other.
"""

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

#: A function that returns a context manager, which holds a lock.
Hold = Callable[[], AbstractContextManager[Any]]

#: The name of redis-py's lock, which is also its key.
OLD_NAME = "report"
#: The name of the RedisLock after the switch.
NEW_NAME = "report 2"


def use_redis_py_lock(client: redis.Redis) -> Hold:
    """Use redis-py's Lock, as a program does before it switches to RedisLock."""
    return lambda: client.lock(OLD_NAME, timeout=10, sleep=0.01)


def use_compat_lock(client: redis.Redis) -> Hold:
    """Use compat.Lock, which has redis-py's interface, as in step 1 of the switch to RedisLock."""
    return lambda: client.lock(OLD_NAME, timeout=10, lock_class=compat.Lock)


def use_redis_lock_with_old_key(client: redis.Redis) -> Hold:
    """Use a RedisLock with the key of redis-py's Lock, as in step 2 of the switch."""
    return partial(RedisLock(client, OLD_NAME, key=OLD_NAME, ttl=10).hold, wait=60)


def use_both_redis_locks(client: redis.Redis) -> Hold:
    """Hold the RedisLocks with the old and the new key, as in step 3, first deployment."""
    locks = [RedisLock(client, OLD_NAME, key=OLD_NAME, ttl=10), RedisLock(client, NEW_NAME, ttl=10)]
    return partial(MultiLock(locks).hold, wait=60)


def use_new_redis_lock(client: redis.Redis) -> Hold:
    """Use only the RedisLock with the new key, as in step 3, second deployment."""
    return partial(RedisLock(client, NEW_NAME, ttl=10).hold, wait=60)


@pytest.mark.parametrize(
    ("use_old_lock", "use_new_lock"),
    [
        (use_redis_py_lock, use_compat_lock),
        (use_compat_lock, use_redis_lock_with_old_key),
        (use_redis_lock_with_old_key, use_both_redis_locks),
        (use_both_redis_locks, use_new_redis_lock),
    ],
)
def test_old_and_new_locks_exclude_each_other(
    server: Server, use_old_lock: Callable[..., Hold], use_new_lock: Callable[..., Hold]
) -> None:
    """While a step of the switch is deployed, some processes use the old lock, others the new one.

    Either lock waits while the other lock is held, and is acquired after the other lock's release.
    """
    for use_held_lock, use_waiting_lock in (
        (use_old_lock, use_new_lock),
        (use_new_lock, use_old_lock),
    ):
        with use_held_lock(server.make_client())():
            hold_waiting_lock = use_waiting_lock(server.make_client())
            waiter = run_in_thread(partial(_acquire_and_release, hold_waiting_lock))
            with pytest.raises(TimeoutError):
                waiter.result(0.15)
        waiter.result(5)


def _acquire_and_release(hold: Hold) -> None:
    with hold():
        pass


@pytest.mark.parametrize("token", [None, "17-3", "2026-11", "job-17"])
@pytest.mark.parametrize("timeout", [60, None])
def test_waiter_soon_notices_the_release_of_an_old_lock(
    client: redis.Redis, timeout: float | None, token: str | None
) -> None:
    """redis-py's Lock is held, and a RedisLock waits. The release will not wake the waiter.

    So the waiter must poll, although the holder's key expires in a minute or never. A waiter does
    not poll if the token of the holder shows that the holder uses a RedisLock. The tokens in this
    test look similar to the tokens of a RedisLock.
    """
    old_lock = client.lock(OLD_NAME, timeout=timeout)
    assert old_lock.acquire(token=token)
    new_lock = RedisLock(client, OLD_NAME, key=OLD_NAME, ttl=30)
    waiter = start_waiter(new_lock)
    old_lock.release()
    released_at = time.monotonic()
    waiter.result(5).release()
    assert time.monotonic() - released_at < 1


def test_waiters_of_a_new_lock_do_not_poll(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RedisLock is held, and a thread waits for it. It sends no command until it is woken."""
    lock = RedisLock(client, OLD_NAME, key=OLD_NAME, ttl=30)
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
    """Another program has locked the key with a token that is not UTF-8."""
    client.set(OLD_NAME, b"\xff\xfe", px=10_000)
    inspection = RedisLock(client, OLD_NAME, key=OLD_NAME, ttl=1).inspect()
    assert inspection.owner == r"\xff\xfe"


def test_keys_derived_from_a_key_are_unique_and_in_its_slot() -> None:
    """A lock derives four keys from its name, or from its argument `key`.

    None of the locks here share a key. The keys derived from `key` have its slot in a cluster.
    """
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
            continue  # this name cannot be a hash tag, so no other key can have its slot
        slots = {key_slot(key) for key in derive_keys("", name.encode())}
        assert len(slots) == 1, name


@pytest.mark.parametrize("name", ["report", "a{b}c", "%7B"])
def test_key_of_a_named_lock_gives_the_same_four_keys(name: str) -> None:
    """Two locks have one key: one derives it from its name, the other gets it as an argument.

    Their other keys must be the same, too, so that the locks share a queue and a fence.
    """
    keys = derive_keys(name)
    assert derive_keys("renamed", keys[0]) == keys
