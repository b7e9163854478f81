"""Tests of the benchmark bench/drain.py, which measures how fast a queue of waiters is served."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import redis

from ..testing.server import Server
from .waiting import LOCKS_PACKAGE

bench = pytest.importorskip(f"{LOCKS_PACKAGE}.bench.drain", exc_type=ImportError)


def test_drain_serves_every_waiter_once_and_measures_it(
    server: Server, client: redis.Redis
) -> None:
    """Eight waiters hold the lock in turn, for 2 ms each, with each of these locks.

    "floor" is not a real lock, but a lower bound: no lock needs fewer commands or less time.
    """
    with ProcessPoolExecutor(bench.PROCESS_COUNT, multiprocessing.get_context("spawn")) as pool:
        for lock in ("floor", "RedisLock", "python-redis-lock", "AsyncRedisLock"):
            figures = bench.measure_drain(
                pool, server.port, waiters=8, hold_seconds=0.002, lock_type=lock
            )
            assert figures["seconds"] > 8 * 0.002
            assert figures[bench.COMMANDS] >= 2  # for each acquisition and its release
    client.flushall()  # the keys of "floor" have no ttl


def test_overlapping_holds_are_reported() -> None:
    """The second holder acquires the lock before the first one releases it."""
    with pytest.raises(bench.Violation, match=r"acquired at 1.9 s, before the release at 2.0 s"):
        bench.summarize_spans([(1.0, 2.0), (1.9, 3.0)], drain_started_at=0.5)
