"""Locks of one client, on a loop that ends with the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio

from .. import AsyncRedisLock
from ..aio import shared

Make = Callable[..., AsyncRedisLock]


@asynccontextmanager
async def locks_on(port: int) -> AsyncIterator[Make]:
    """Makes locks of one client of its own, whose tasks end with the block."""
    client = redis.asyncio.Redis(port=port)
    yield lambda name, **options: AsyncRedisLock(client, name, **{"ttl": 30, **options})
    for each in shared._shared.pop(client.connection_pool, {}).values():
        await each.end.aclose()
    await client.aclose()


@asynccontextmanager
async def lock_on(port: int, name: str = "fuzzed", **options: Any) -> AsyncIterator[AsyncRedisLock]:
    """One lock of such a client."""
    async with locks_on(port) as make:
        yield make(name, **options)


async def is_free(lock: AsyncRedisLock) -> bool:
    state = await lock.inspect()
    return (state.owner, state.waiters) == (None, ())


def run(port: int, work: Callable[[Make], Awaitable[None]]) -> None:
    async def main() -> None:
        async with locks_on(port) as make:
            await work(make)

    asyncio.run(main())


async def owners(*locks: AsyncRedisLock) -> list[bool]:
    return [await lock.locked() for lock in locks]


async def are(state: list[bool], *locks: AsyncRedisLock) -> bool:
    return await owners(*locks) == state
