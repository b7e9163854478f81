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
            found = drain.drain(pool, server.port, lock, 8, 0.002)
            assert found["seconds"] > 8 * 0.002
            assert found["hand_over_us"] > 0
            assert found["reads"] >= 2
    client.flushall()  # the floor's tokens have no ttl


def test_two_holders_at_once_and_an_overtaken_waiter_are_found() -> None:
    first, second, late = (0.0, 1.0, 2.0), (0.3, 2.0, 3.0), (0.2, 3.0, 4.0)
    assert drain.judge([late, second, first], opened=0.5)["overtakes_max"] == 1
    with pytest.raises(drain.Violation, match=r"held from 1.9 although held until 2.0"):
        drain.judge([first, (0.3, 1.9, 3.0)], opened=0.5)
