"""Pairs of acquire and release with nobody else there, and the drain of a queue of waiters."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache

import redis
import redis.asyncio

from .contenders import EXCLUDES, TASKS, THREADS

PROCESSES = 4
#: arrived, acquired, released: seconds of the monotonic clock, which all processes share
Span = tuple[float, float, float]
_numbers = itertools.count()


class Violation(Exception):
    """Two held the lock at once."""


@cache
def client_at(port: int) -> redis.Redis:
    """This process's client, which keeps its connections from one measure to the next."""
    return redis.Redis(port=port, max_connections=500, socket_timeout=60)


def free_name(client: redis.Redis, lock: str) -> str:
    """A name that no measure used before; for the floor, that of a list with a token."""
    name = f"bench:{next(_numbers)}"
    if lock == "floor":
        client.rpush(name, "token")
    return name


def pairs(port: int, lock: str, seconds: float) -> dict[str, float]:
    """Acquire and release with nobody else there, in one thread."""
    client, hold = client_at(port), THREADS[lock]
    name = free_name(client, lock)
    with hold(client, name):
        pass
    reads, done, started = _reads(client), 0, time.perf_counter()
    while (took := time.perf_counter() - started) < seconds:
        with hold(client, name):
            done += 1
    return {"pairs_per_s": done / took, "reads": (_reads(client) - reads) / done}


def drain(
    pool: ProcessPoolExecutor, port: int, lock: str, waiters: int, hold: float
) -> dict[str, float]:
    """`waiters` queue behind a gate, one every 2 ms; from its opening until the last released."""
    client = client_at(port)
    name = free_name(client, lock)
    with THREADS[EXCLUDES.get(lock, lock)](client, name):
        reads = _reads(client)
        base = time.monotonic() + 0.1
        arrivals = [base + 0.002 * number for number in range(waiters)]
        shares = [arrivals[number::PROCESSES] for number in range(PROCESSES)]
        jobs = [pool.submit(contend, port, lock, name, hold, share) for share in shares]
        time.sleep(arrivals[-1] + 0.5 - time.monotonic())
        opened = time.monotonic()
    spans = [span for job in jobs for span in job.result()]
    return judge(spans, opened) | {"reads": (_reads(client) - reads) / waiters}


def _reads(client: redis.Redis) -> int:
    """How often the server has read from its clients: once for each command and handshake."""
    return int(client.info("stats")["total_reads_processed"])


def judge(spans: Sequence[Span], opened: float) -> dict[str, float]:
    """What the holds show, if there was one at a time. Raises Violation if two overlap."""
    spans = sorted(spans, key=lambda span: span[1])
    for (_, _, released), (_, acquired, _) in itertools.pairwise(spans):
        if acquired < released:
            raise Violation(f"held from {acquired} although held until {released}")
    took = spans[-1][2] - opened
    return {
        "seconds": took,
        "hand_over_us": (took - sum(r - a for _, a, r in spans)) / len(spans) * 1e6,
        "overtakes_max": max(_overtakes(spans)),
    }


def _overtakes(spans: Sequence[Span]) -> list[int]:
    """For each hold, how many that arrived later had the lock before it.

    An arrival is when the thread asked; two that ask within the same moment may reach the server
    in either order.
    """
    earlier: list[float] = []
    counts = []
    for arrived, _, _ in spans:
        place = bisect.bisect(earlier, arrived)
        counts.append(len(earlier) - place)
        earlier.insert(place, arrived)
    return counts


def contend(port: int, lock: str, name: str, hold: float, arrivals: Sequence[float]) -> list[Span]:
    """In one of the processes: a thread or a task for each arrival takes the lock once."""
    if lock in TASKS:
        return asyncio.run(_tasks(port, lock, name, hold, arrivals))
    client = client_at(port)

    def once(arrival: float) -> Span:
        time.sleep(max(0.0, arrival - time.monotonic()))
        arrived = time.monotonic()
        with THREADS[lock](client, name):
            acquired = time.monotonic()
            time.sleep(hold)
            released = time.monotonic()
        return arrived, acquired, released

    with ThreadPoolExecutor(len(arrivals)) as threads:
        return list(threads.map(once, arrivals))


async def _tasks(
    port: int, lock: str, name: str, hold: float, arrivals: Sequence[float]
) -> list[Span]:
    async def once(arrival: float) -> Span:
        await asyncio.sleep(max(0.0, arrival - time.monotonic()))
        arrived = time.monotonic()
        async with TASKS[lock](client, name):
            acquired = time.monotonic()
            await asyncio.sleep(hold)
            released = time.monotonic()
        return arrived, acquired, released

    async with redis.asyncio.Redis(port=port, max_connections=500) as client:
        return await asyncio.gather(*map(once, arrivals))
