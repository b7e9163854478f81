"""A benchmark of RedisLock, redis-py's Lock, python-redis-lock and a lower bound, the floor.

    python -m locks.bench     about three minutes

Uncontended acquisitions are measured in one thread. Then many waiters queue for a held lock, it is
released, and the time until the last of them has released it is measured: the queue is drained.

It prints a table for each measure. Every figure is a median over the rounds. In each round the
locks run one after another in random order, so that a busy machine slows all of them. The number of
commands is the number of reads by the server, including the handshakes of new connections.
"""

import asyncio
import itertools
import multiprocessing
import os
import platform
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any

import redis
import redis.asyncio
import redis_lock  # type: ignore[import-untyped]  # python-redis-lock

from .. import AsyncRedisLock, RedisLock
from ..testing.server import Server

WAIT_SECONDS = 60.0
TTL_SECONDS = 30
PROCESS_COUNT = 4
COMMANDS = "commands per acquisition"
#: The times at which a lock was acquired and released, of the monotonic clock, which all processes
#: share.
Span = tuple[float, float]
_numbers = itertools.count()


class Violation(Exception):
    """Two holders had the lock at once."""


@contextmanager
def floor(client: redis.Redis, name: str) -> Iterator[None]:
    """Pass a token through a list: the lower bound for any lock on one server.

    This takes two commands, without redis-py's retries. It is no lock: when a holder dies, the
    token is gone. free_name() puts the token into the list.
    """
    connection: Any = client.connection_pool.get_connection()
    connection.send_command("BLPOP", name, 0)
    connection.read_response()
    try:
        yield
    finally:
        connection.send_command("RPUSH", name, "token")
        connection.read_response()
        client.connection_pool.release(connection)


#: By default redis-py's locks poll every 100 ms.
THREADS: dict[str, Callable[[redis.Redis, str], AbstractContextManager[Any]]] = {
    "floor": floor,
    "RedisLock": lambda client, name: RedisLock(client, name, ttl=TTL_SECONDS).hold(
        wait=WAIT_SECONDS
    ),
    "redis-py Lock": lambda client, name: client.lock(
        name, timeout=TTL_SECONDS, blocking_timeout=WAIT_SECONDS
    ),
    "python-redis-lock": lambda client, name: redis_lock.Lock(client, name, expire=TTL_SECONDS),
}
TASKS: dict[str, Callable[[Any, str], AbstractAsyncContextManager[Any]]] = {
    "AsyncRedisLock": lambda client, name: AsyncRedisLock(client, name, ttl=TTL_SECONDS).hold(
        wait=WAIT_SECONDS
    ),
    "redis-py asyncio": lambda client, name: client.lock(
        name, timeout=TTL_SECONDS, blocking_timeout=WAIT_SECONDS
    ),
}
#: Lock for tasks -> lock for threads with the same key.
EXCLUDES = {"AsyncRedisLock": "RedisLock", "redis-py asyncio": "redis-py Lock"}


@cache
def client_at(port: int) -> redis.Redis:
    """Return this process's client, which keeps its connections between measurements."""
    return redis.Redis(port=port, max_connections=500, socket_timeout=60)


def free_name(client: redis.Redis, lock: str) -> str:
    """Return an unused name; for the floor, the name of a list that has a token."""
    name = f"bench:{next(_numbers)}"
    if lock == "floor":
        client.rpush(name, "token")
    return name


def measure_uncontended(port: int, lock: str, seconds: float) -> dict[str, float]:
    """Measure uncontended acquisitions and releases in one thread."""
    client = client_at(port)
    hold = THREADS[lock]
    name = free_name(client, lock)
    with hold(client, name):
        pass
    reads_before = _count_reads(client)
    holds = 0
    started = time.perf_counter()
    while (took := time.perf_counter() - started) < seconds:
        with hold(client, name):
            holds += 1
    reads = _count_reads(client) - reads_before
    return {"pairs per second": holds / took, COMMANDS: reads / holds}


def measure_drain(
    pool: ProcessPoolExecutor, port: int, waiters: int, hold: float, lock: str
) -> dict[str, float]:
    """Measure the time from the release of a lock to the release by the last of its waiters."""
    client = client_at(port)
    name = free_name(client, lock)
    with THREADS[EXCLUDES.get(lock, lock)](client, name):
        reads_before = _count_reads(client)
        base = time.monotonic() + 0.1
        arrivals = [base + 0.002 * number for number in range(waiters)]
        shares = [arrivals[number::PROCESS_COUNT] for number in range(PROCESS_COUNT)]
        jobs = [pool.submit(contend, port, lock, name, hold, share) for share in shares]
        time.sleep(arrivals[-1] + 0.5 - time.monotonic())
        opened = time.monotonic()
    spans = [span for job in jobs for span in job.result()]
    reads = _count_reads(client) - reads_before
    return summarize_spans(spans, opened) | {COMMANDS: reads / waiters}


def _count_reads(client: redis.Redis) -> int:
    """Return how often the server has read from clients: once per command and handshake."""
    return int(client.info("stats")["total_reads_processed"])


def summarize_spans(spans: Sequence[Span], opened: float) -> dict[str, float]:
    """Return the figures of a drained queue. Raises Violation if two spans overlap.

    Args:
        spans: The span of each waiter.
        opened: Time at which the first holder released the lock.
    """
    spans = sorted(spans)
    for (_, released), (acquired, _) in itertools.pairwise(spans):
        if acquired < released:
            raise Violation(f"acquired at {acquired} s, before the release at {released} s")
    took = spans[-1][1] - opened
    return {
        "seconds": took,
        "hand-over, microseconds": (took - sum(r - a for a, r in spans)) / len(spans) * 1e6,
    }


def contend(port: int, lock: str, name: str, hold: float, arrivals: Sequence[float]) -> list[Span]:
    """Acquire the lock once per arrival, each time in a thread or task of this process."""
    if lock in TASKS:
        return asyncio.run(_tasks(port, lock, name, hold, arrivals))
    client = client_at(port)

    def once(arrival: float) -> Span:
        time.sleep(max(0.0, arrival - time.monotonic()))
        with THREADS[lock](client, name):
            acquired = time.monotonic()
            time.sleep(hold)
            return acquired, time.monotonic()

    with ThreadPoolExecutor(len(arrivals)) as threads:
        return list(threads.map(once, arrivals))


async def _tasks(
    port: int, lock: str, name: str, hold: float, arrivals: Sequence[float]
) -> list[Span]:
    async def once(arrival: float) -> Span:
        await asyncio.sleep(max(0.0, arrival - time.monotonic()))
        async with TASKS[lock](client, name):
            acquired = time.monotonic()
            await asyncio.sleep(hold)
            return acquired, time.monotonic()

    async with redis.asyncio.Redis(port=port, max_connections=500) as client:
        return await asyncio.gather(*map(once, arrivals))


def compare(
    title: str, locks: list[str], rounds: int, measure: Callable[[str], dict[str, float]]
) -> None:
    """Print the medians, a row per figure and a column per lock."""
    chance = random.Random(rounds)
    values_by_figure: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(
        partial(defaultdict, list)
    )
    for _ in range(rounds):
        for lock in chance.sample(locks, len(locks)):
            for name, value in measure(lock).items():
                values_by_figure[name][lock].append(value)
    headings = [lock.rjust(19) for lock in locks]
    print(f"\n{title}".ljust(35) + "".join(headings))
    for name, values in values_by_figure.items():
        medians = [f"{statistics.median(values[lock]):,.4g}".rjust(19) for lock in locks]
        print(f"  {name}".ljust(34) + "".join(medians), flush=True)


def main() -> None:
    server = Server()
    try:
        info = server.client().info("server")
        version = info.get("valkey_version") or info["redis_version"]
        print(f"{os.cpu_count()} processors, Python {platform.python_version()}, server {version}")
        compare(
            "uncontended",
            list(THREADS),
            100,
            lambda lock: measure_uncontended(server.port, lock, 0.1),
        )
        with ProcessPoolExecutor(PROCESS_COUNT, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(time.sleep, [0.5] * PROCESS_COUNT))  # until all processes have started
            for kind, locks, hold in (
                ("threads", list(THREADS), 0.001),
                ("threads", list(THREADS), 0.005),
                ("tasks", ["RedisLock"] + list(TASKS), 0.001),
            ):
                title = f"200 {kind}, hold {1000 * hold:.0f} ms"
                compare(title, locks, 11, partial(measure_drain, pool, server.port, 200, hold))
    finally:
        server.stop()
