"""The benchmark's drain: real contenders take turns, and two holders at once are noticed."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import redis

from ..testing.server import Server

drain = pytest.importorskip(f"{__package__.rpartition('.')[0]}.bench.drain", exc_type=ImportError)


def test_a_drain_serves_every_waiter_once_and_counts_what_it_took(
    server: Server, client: redis.Redis
) -> None:
    with ProcessPoolExecutor(drain.PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for lock in ("floor", "RedisLock", "AsyncRedisLock"):
            found = drain.drain(pool, server.port, 8, 0.002, lock)
            assert found["seconds"] > 8 * 0.002
            assert found[drain.COMMANDS] >= 2
    client.flushall()  # the floor's tokens have no ttl


def test_two_holders_at_once_are_found() -> None:
    with pytest.raises(drain.Violation, match=r"held from 1.9 although held until 2.0"):
        drain.judge([(0.0, 1.0, 2.0), (0.3, 1.9, 3.0)], opened=0.5)
