"""A lease: who may use it, what it knows, and arguments that cannot work."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import pytest
import redis
import redis.asyncio

from .. import AsyncRedisLock, LockLost, RedisLock, Release
from ..errors import LossReason
from ..support import now
from ..testing.server import Server, eventually
from .waiting import held, in_thread, waiter


def test_a_lease_may_be_released_by_another_thread(client: redis.Redis) -> None:
    lock = RedisLock(client, "passed on", ttl=10)
    lease = lock.acquire(1)
    assert in_thread(lease.release).result(5) is Release.RELEASED
    assert not lock.locked()


def test_a_lock_decorates_a_function(client: redis.Redis) -> None:
    lock = RedisLock(client, "decorated", ttl=10)

    @lock.hold(wait=1)
    def owner() -> str | None:
        return lock.inspect().owner

    assert owner() != owner()
    assert not lock.locked()


def test_inspect_shows_the_owner_the_time_left_and_the_waiters_in_order(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "seen", ttl=10)
    assert lock.inspect().owner is None
    with held(lock) as lease:
        first, second = waiter(lock), waiter(lock)
        seen = lock.inspect()
        assert (seen.owner, seen.fence) == (lease.token, lease.fence)
        assert 9 < seen.left <= 10
    assert first.result(5).token == seen.waiters[0]
    first.result().release()
    assert second.result(5).token == seen.waiters[1]
    second.result().release()
    assert client.ttl("lock:{seen}:places") == -2


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, 0.0004])
def test_a_ttl_that_cannot_work_is_refused(client: redis.Redis, ttl: float) -> None:
    with pytest.raises(ValueError, match="give seconds"):
        RedisLock(client, "x", ttl=ttl)


@pytest.mark.parametrize("wait", [-1, math.nan])
def test_a_wait_that_cannot_work_is_refused(client: redis.Redis, wait: float) -> None:
    with pytest.raises(ValueError, match="give seconds"):
        RedisLock(client, "x", ttl=1).acquire(wait)


def test_bad_arguments_say_what_to_do(server: Server, client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="say what it protects"):
        RedisLock(client, "", ttl=1)
    with pytest.raises(ValueError, match="at least the ttl"):
        RedisLock(client, "x", ttl=10, max_hold=5)
    other: Any
    for other in (redis.asyncio.Redis(port=server.port), object(), "redis://localhost"):
        with pytest.raises(TypeError, match=r"RedisLock needs a redis\.Redis"):
            RedisLock(other, "x", ttl=1)
    for other in (client, object()):
        with pytest.raises(TypeError, match=r"AsyncRedisLock needs a redis\.asyncio\.Redis"):
            AsyncRedisLock(other, "x", ttl=1)
    with pytest.raises(ValueError, match="ttl"):
        AsyncRedisLock(redis.asyncio.Redis(), "x", ttl=0)


def test_the_client_s_wall_clock_may_jump(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RedisLock(client, "wall clock", ttl=10)
    with held(lock) as lease:
        other = waiter(lock)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        lease.check()
        assert 9 < lease.remaining() < 10
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert 9 < other.result(5).remaining() < 10
    other.result().release()


def test_on_lost_may_fail_and_is_called_once(
    client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[LossReason] = []
    done = threading.Event()

    def on_lost(_: object, loss: LossReason) -> None:
        called.append(loss)
        done.set()
        raise ZeroDivisionError

    lease = RedisLock(client, "called", ttl=10, on_lost=on_lost).acquire(1)
    lease.deadline = now()
    with pytest.raises(LockLost):
        lease.check()
    lease.mark_lost(LossReason.TAKEN)
    assert done.wait(5)
    eventually(lambda: "ZeroDivisionError" in caplog.text)
    assert called == [LossReason.EXPIRED]
    lease.release()
