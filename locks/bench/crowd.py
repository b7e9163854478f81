"""A crowd of tasks in one lock's queue: memory, processor time, and the order of the drain."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import suppress
from pathlib import Path

import redis.asyncio

from .. import AsyncRedisLock, LockTimeout

#: Seconds for which the crowd is watched while it waits: more than one renewal of its holder.
WATCHED = 20.0
TTL = 30.0


def crowd(port: int, waiters: int) -> dict[str, float]:
    """Call it in a process of its own, whose memory and processor time are the crowd's."""
    return asyncio.run(_crowd(port, waiters))


async def _crowd(port: int, waiters: int) -> dict[str, float]:
    client = redis.asyncio.Redis(port=port)
    lock = AsyncRedisLock(client, "crowd", ttl=TTL)
    order: list[int] = []

    async def wait(number: int) -> None:
        async with lock.hold(wait=600):
            order.append(number)

    holder = await lock.acquire(5)
    with suppress(LockTimeout):
        await lock.acquire(0.001)  # subscribed
    before = _resident()
    tasks = [asyncio.create_task(wait(number)) for number in range(waiters)]
    while len((await lock.inspect()).waiters) < waiters:
        await asyncio.sleep(0.2)
    memory = _resident() - before
    cpu, since = time.process_time(), time.perf_counter()
    await asyncio.sleep(WATCHED)
    cpu = (time.process_time() - cpu) / (time.perf_counter() - since)
    opened = time.perf_counter()
    await holder.release()
    await asyncio.gather(*tasks)
    took = time.perf_counter() - opened
    await client.aclose()
    return {
        "bytes_per_waiter": memory / waiters,
        "cpu_percent_while_waiting": 100 * cpu,
        "drained_per_s": waiters / took,
        "out_of_order": sum(a > b for a, b in itertools.pairwise(order)),
    }


def _resident() -> int:
    """Bytes of memory that this process has now."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096
