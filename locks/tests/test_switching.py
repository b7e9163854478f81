"""Each step of FROM_REDIS_PY.md with both kinds of lock contending, and the traps it avoids."""

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

Block = Callable[[], AbstractContextManager[Any]]

NAME = "report"


def old(client: redis.Redis) -> Block:
    return lambda: client.lock(NAME, timeout=10, sleep=0.01)


def step_1(client: redis.Redis) -> Block:
    return lambda: client.lock(NAME, timeout=10, lock_class=compat.Lock)


def step_2(client: redis.Redis) -> Block:
    return partial(RedisLock(client, NAME, key=NAME, ttl=10).hold, wait=60)


def step_3(client: redis.Redis) -> Block:
    both = [RedisLock(client, NAME, key=NAME, ttl=10), RedisLock(client, "report 2", ttl=10)]
    return partial(MultiLock(both).hold, wait=60)


def step_4(client: redis.Redis) -> Block:
    return partial(RedisLock(client, "report 2", ttl=10).hold, wait=60)


@pytest.mark.parametrize(
    ("before", "after"), [(old, step_1), (step_1, step_2), (step_2, step_3), (step_3, step_4)]
)
def test_old_and_new_locks_exclude_each_other(
    server: Server, before: Callable[..., Block], after: Callable[..., Block]
) -> None:
    """The holder's release lets the other kind of lock acquire, as during a roll-out."""
    for first, second in ((before, after), (after, before)):
        with first(server.client())():
            waiter = run_in_thread(partial(_hold_once, second(server.client())))
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
    """The old release wakes no waiter, and its key had a minute left or no ttl at all."""
    lock = client.lock(NAME, timeout=timeout)
    assert lock.acquire(token=token)
    observer = RedisLock(client, NAME, key=NAME, ttl=30)
    waiter = start_waiter(observer)
    lock.release()
    released = time.monotonic()
    waiter.result(5).release()
    assert time.monotonic() - released < 1


def test_waiters_of_a_new_lock_do_not_poll(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RedisLock(client, NAME, key=NAME, ttl=30)
    holder = lock.acquire(1)
    waiter = start_waiter(lock)
    calls: list[object] = []
    monkeypatch.setattr(lock._server, "call", lambda *call, **_: calls.append(call))
    with pytest.raises(TimeoutError):
        waiter.result(0.5)
    assert calls == []
    monkeypatch.undo()
    holder.release()
    waiter.result(5).release()


def test_undecodable_owner_can_be_inspected(client: redis.Redis) -> None:
    client.set(NAME, b"\xff\xfe", px=10_000)
    inspection = RedisLock(client, NAME, key=NAME, ttl=1).inspect()
    assert inspection.owner == r"\xff\xfe"


def test_keys_derived_from_a_key_are_unique_and_in_its_slot() -> None:
    names = ["report", "a{b}c", "x{b}c", "{b}", "b", "{{b}", "a{b", "%7Bb", "b}key", "b:key"]
    keys_of_all: set[bytes] = set()
    for name in names:
        derived_keys = derive_keys("", name.encode())
        assert derived_keys[0] == name.encode()
        plain = derive_keys(name)
        assert not keys_of_all & {*derived_keys, *plain}
        keys_of_all |= {*derived_keys, *plain}
    assert len(keys_of_all) == 8 * len(names)
    assert all(key.startswith(b"lock:{") for key in keys_of_all if key.decode() not in names)
    cluster = [name for name in names if "}" not in name or "{" in name]
    for name in cluster:
        slots = {key_slot(key) for key in derive_keys("", name.encode())}
        assert len(slots) == 1, name
