"""A failover that keeps its clients connected, seen by AsyncRedisLock; see test_failover.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from .. import AsyncRedisLock, LockBackendError, RedisLock, Release
from ..aio import wakeups
from .test_failover import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.stop()


async def soon(predicate: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not await asyncio.to_thread(predicate):
            await asyncio.sleep(0.01)


def test_a_task_that_only_waits_follows_a_failover_without_an_error(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "PROBE", 0.2)
    holder = RedisLock(pair.master.client(), "looked after", ttl=60).acquire(5)
    there = RedisLock(pair.replica.client(), "looked after", ttl=60)

    def channels() -> set[bytes]:
        waiters: Any = pair.replica.client().hvals("lock:{looked after}:waiting")
        return {each.split()[0] for each in waiters}

    async def main() -> Release:
        async with redis.asyncio.Redis(port=pair.name.port) as client:
            lock = AsyncRedisLock(client, "looked after", ttl=60)
            other = asyncio.create_task(lock.acquire(30))
            await soon(channels)
            before = channels()
            await asyncio.to_thread(pair.fail_over)
            await soon(lambda: channels() and not channels() & before)
            assert not other.done()
            assert await asyncio.to_thread(there._release, holder) is Release.RELEASED
            return await (await asyncio.wait_for(other, 5)).release()

    assert asyncio.run(main()) is Release.RELEASED


def test_no_task_waits_at_a_replica_that_the_name_still_leads_to(pair: Pair) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis(port=pair.name.port) as client:
            lock = AsyncRedisLock(client, "waits elsewhere", ttl=60)
            async with lock.hold(wait=1):
                pair.name.lead_to(pair.replica.port)  # for connections from now on
                with pytest.raises(LockBackendError, match="replica"):
                    await lock.acquire(5)

    asyncio.run(main())
