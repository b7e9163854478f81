"""The benchmark's drain serves real contenders and reports a planted violation."""

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
    """Eight waiters are queued. "floor" is the benchmark's lower bound, not a real lock."""
    with ProcessPoolExecutor(bench.PROCESS_COUNT, multiprocessing.get_context("spawn")) as pool:
        for lock in ("floor", "RedisLock", "python-redis-lock", "AsyncRedisLock"):
            figures = bench.measure_drain(
                pool, server.port, waiters=8, hold_seconds=0.002, lock_type=lock
            )
            assert figures["seconds"] > 8 * 0.002
            assert figures[bench.COMMANDS] >= 2
    client.flushall()  # the keys of "floor" have no ttl


def test_overlapping_holds_are_reported() -> None:
    with pytest.raises(bench.Violation, match=r"acquired at 1.9 s, before the release at 2.0 s"):
        bench.summarize_spans([(1.0, 2.0), (1.9, 3.0)], opened_at=0.5)
