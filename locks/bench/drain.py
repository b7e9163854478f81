"""A benchmark of RedisLock, redis-py's Lock and python-redis-lock.

Beside the locks it measures `floor`, a lower bound: two commands, which any lock needs at least.

    python -m locks.bench     about three minutes

There are two measurements. In the first, one thread acquires and releases a free lock repeatedly.
In the second, the drain, many waiters queue for a held lock. The lock is released, and each waiter
acquires and releases it in turn. The drain ends when the last waiter has released the lock.

The benchmark prints a table for each measurement. Every number is a median over the rounds. In each
round the locks run one after another in random order, so that a busy machine slows all of them. The
number of commands is the number of reads by the server, including the handshakes of new
connections.
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
#: Number of waiters of a drain, and of the processes over which they are spread.
WAITER_COUNT = 200
PROCESS_COUNT = 4
#: The name of the table's row with the number of commands that an acquisition takes.
COMMANDS = "commands per acquisition"
#: The times at which a lock was acquired and released, in seconds of the monotonic clock, which all
#: processes share.
Span = tuple[float, float]
_name_numbers = itertools.count()


class Violation(Exception):
    """Two holders had the lock at once."""


@contextmanager
def take_token(client: redis.Redis, name: str) -> Iterator[None]:
    """Take a token from a list on the server for the block, and put it back afterwards.

    This takes two commands, without redis-py's retries, so it is a lower bound for the time that
    any lock takes. It is not a lock: when a holder dies, the token is gone. prepare_name() puts the
    token into the list.
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


#: The locks for threads by their names in the tables. Each function makes a context manager that
#: holds the lock of a name. By default redis-py's locks poll every 100 ms.
THREAD_LOCKS: dict[str, Callable[[redis.Redis, str], AbstractContextManager[Any]]] = {
    "floor": take_token,
    "RedisLock": lambda client, name: RedisLock(client, name, ttl=TTL_SECONDS).hold(
        wait=WAIT_SECONDS
    ),
    "redis-py Lock": lambda client, name: client.lock(
        name, timeout=TTL_SECONDS, blocking_timeout=WAIT_SECONDS
    ),
    "python-redis-lock": lambda client, name: redis_lock.Lock(client, name, expire=TTL_SECONDS),
}
#: The locks for asyncio by their names in the tables.
TASK_LOCKS: dict[str, Callable[[Any, str], AbstractAsyncContextManager[Any]]] = {
    "AsyncRedisLock": lambda client, name: AsyncRedisLock(client, name, ttl=TTL_SECONDS).hold(
        wait=WAIT_SECONDS
    ),
    "redis-py asyncio": lambda client, name: client.lock(
        name, timeout=TTL_SECONDS, blocking_timeout=WAIT_SECONDS
    ),
}
#: For each lock for asyncio, the lock for threads that has the same key and so excludes it.
THREAD_LOCK_OF = {"AsyncRedisLock": "RedisLock", "redis-py asyncio": "redis-py Lock"}


@cache
def get_client(port: int) -> redis.Redis:
    """Return this process's client, which keeps its connections between measurements."""
    return redis.Redis(port=port, max_connections=500, socket_timeout=60)


def prepare_name(client: redis.Redis, lock_type: str) -> str:
    """Return an unused name for a lock. For take_token(), also create the list of this name."""
    name = f"bench:{next(_name_numbers)}"
    if lock_type == "floor":
        client.rpush(name, "token")
    return name


def measure_uncontended(port: int, lock_type: str, seconds: float) -> dict[str, float]:
    """Acquire and release a free lock in one thread, again and again for `seconds`.

    Returns the pairs of acquisition and release per second, and the commands per acquisition.
    """
    client = get_client(port)
    hold = THREAD_LOCKS[lock_type]
    name = prepare_name(client, lock_type)
    with hold(client, name):
        pass  # the first acquisition opens the connections and loads the scripts into the server
    commands_before = _count_commands(client)
    hold_count = 0
    started_at = time.perf_counter()
    elapsed_seconds = 0.0
    while elapsed_seconds < seconds:
        with hold(client, name):
            hold_count += 1
        elapsed_seconds = time.perf_counter() - started_at
    command_count = _count_commands(client) - commands_before
    return {"pairs per second": hold_count / elapsed_seconds, COMMANDS: command_count / hold_count}


def measure_drain(
    pool: ProcessPoolExecutor, port: int, waiters: int, hold_seconds: float, lock_type: str
) -> dict[str, float]:
    """Measure the time from the release of a lock to the release by the last of its waiters.

    Args:
        pool: PROCESS_COUNT processes, over which the waiters are spread.
        port: The server's port.
        waiters: Number of waiters.
        hold_seconds: Seconds for which each waiter holds the lock.
        lock_type: A name in THREAD_LOCKS or TASK_LOCKS.

    Returns:
        The figures of summarize_spans(), and the commands per acquisition.
    """
    client = get_client(port)
    name = prepare_name(client, lock_type)
    # Until all waiters are queued, the lock is held. A lock for asyncio is held by a lock for
    # threads with the same key.
    with THREAD_LOCKS[THREAD_LOCK_OF.get(lock_type, lock_type)](client, name):
        commands_before = _count_commands(client)
        first_arrival = time.monotonic() + 0.1  # by then the processes have received their jobs
        arrivals = [first_arrival + 0.002 * number for number in range(waiters)]
        shares = [arrivals[number::PROCESS_COUNT] for number in range(PROCESS_COUNT)]
        jobs = [
            pool.submit(hold_once_per_arrival, port, lock_type, name, hold_seconds, share)
            for share in shares
        ]
        time.sleep(arrivals[-1] + 0.5 - time.monotonic())  # by then all waiters are queued
        drain_started_at = time.monotonic()
    spans = [span for job in jobs for span in job.result()]
    command_count = _count_commands(client) - commands_before
    return summarize_spans(spans, drain_started_at) | {COMMANDS: command_count / waiters}


def _count_commands(client: redis.Redis) -> int:
    """Return how many commands the server has received, handshakes included.

    The count is the number of the server's reads, because it reads once per command.
    """
    return int(client.info("stats")["total_reads_processed"])


def summarize_spans(spans: Sequence[Span], drain_started_at: float) -> dict[str, float]:
    """Return how long a queue of waiters took: in all, and per hand-over of the lock.

    Raises Violation if two waiters held the lock at the same time.

    Args:
        spans: For each waiter, the times at which it acquired and released the lock.
        drain_started_at: Time of the monotonic clock at which the first waiter could get the lock.
    """
    spans = sorted(spans)
    for (_, released_at), (acquired_at, _) in itertools.pairwise(spans):
        if acquired_at < released_at:
            raise Violation(f"acquired at {acquired_at} s, before the release at {released_at} s")
    _, last_released_at = spans[-1]
    drain_seconds = last_released_at - drain_started_at
    held_seconds = sum(released_at - acquired_at for acquired_at, released_at in spans)
    return {
        "seconds": drain_seconds,
        "hand-over, microseconds": (drain_seconds - held_seconds) / len(spans) * 1e6,
    }


def hold_once_per_arrival(
    port: int, lock_type: str, name: str, hold_seconds: float, arrivals: Sequence[float]
) -> list[Span]:
    """Hold the lock once per arrival, each time in another thread or task of this process.

    Args:
        port: The server's port.
        lock_type: A name in THREAD_LOCKS or TASK_LOCKS.
        name: The name of the lock on the server.
        hold_seconds: Seconds for which the lock is held each time.
        arrivals: The times of the monotonic clock at which the acquisitions begin.

    Returns:
        The times at which the lock was acquired and released, for each arrival.
    """
    if lock_type in TASK_LOCKS:
        return asyncio.run(_hold_in_tasks(port, lock_type, name, hold_seconds, arrivals))
    client = get_client(port)

    def hold_once(arrival: float) -> Span:
        time.sleep(max(0.0, arrival - time.monotonic()))
        with THREAD_LOCKS[lock_type](client, name):
            acquired_at = time.monotonic()
            time.sleep(hold_seconds)
            return acquired_at, time.monotonic()

    with ThreadPoolExecutor(len(arrivals)) as threads:
        return list(threads.map(hold_once, arrivals))


async def _hold_in_tasks(
    port: int, lock_type: str, name: str, hold_seconds: float, arrivals: Sequence[float]
) -> list[Span]:
    """Hold the lock once per arrival, each time in another task of this process."""

    async def hold_once(arrival: float) -> Span:
        await asyncio.sleep(max(0.0, arrival - time.monotonic()))
        async with TASK_LOCKS[lock_type](client, name):
            acquired_at = time.monotonic()
            await asyncio.sleep(hold_seconds)
            return acquired_at, time.monotonic()

    async with redis.asyncio.Redis(port=port, max_connections=500) as client:
        return await asyncio.gather(*map(hold_once, arrivals))


def print_comparison(
    title: str, lock_types: list[str], rounds: int, measure: Callable[[str], dict[str, float]]
) -> None:
    """Measure each lock once per round, and print a table of the medians.

    Args:
        title: The heading of the table.
        lock_types: Names in THREAD_LOCKS or TASK_LOCKS, one for each column of the table.
        rounds: Number of rounds. In each, the locks are measured in another random order.
        measure: Measures a type of lock once. It returns the numbers for the table's column, by the
            names of the rows.
    """
    random_order = random.Random(rounds)
    #: The measured numbers by the name of the row, then by the type of lock.
    samples: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(
        partial(defaultdict, list)
    )
    for _ in range(rounds):
        for lock_type in random_order.sample(lock_types, len(lock_types)):
            for figure, sample in measure(lock_type).items():
                samples[figure][lock_type].append(sample)
    headings = [lock_type.rjust(19) for lock_type in lock_types]
    print(f"\n{title}".ljust(35) + "".join(headings))
    for figure, samples_by_type in samples.items():
        medians = [statistics.median(samples_by_type[lock_type]) for lock_type in lock_types]
        columns = [f"{median:,.4g}".rjust(19) for median in medians]
        print(f"  {figure}".ljust(34) + "".join(columns), flush=True)


def main() -> None:
    """Measure all locks on a new server, and print a table for each measurement."""
    server = Server()
    try:
        info = server.make_client().info("server")
        version = info.get("valkey_version") or info["redis_version"]
        print(f"{os.cpu_count()} processors, Python {platform.python_version()}, server {version}")
        print_comparison(
            "uncontended",
            list(THREAD_LOCKS),
            rounds=100,
            measure=lambda lock_type: measure_uncontended(server.port, lock_type, seconds=0.1),
        )
        with ProcessPoolExecutor(PROCESS_COUNT, multiprocessing.get_context("spawn")) as pool:
            # Each process sleeps once, so that all have started before the first measurement.
            list(pool.map(time.sleep, [0.5] * PROCESS_COUNT))
            for waiter_kind, lock_types, hold_seconds in (
                ("threads", list(THREAD_LOCKS), 0.001),
                ("threads", list(THREAD_LOCKS), 0.005),
                # RedisLock is listed for comparison. Its waiters are threads in this table, too.
                ("tasks", ["RedisLock"] + list(TASK_LOCKS), 0.001),
            ):
                title = f"{WAITER_COUNT} {waiter_kind}, hold {1000 * hold_seconds:.0f} ms"
                measure = partial(measure_drain, pool, server.port, WAITER_COUNT, hold_seconds)
                print_comparison(title, lock_types, rounds=11, measure=measure)
    finally:
        server.stop()
