"""The benchmark's drain serves real contenders; it and the long stress find planted violations."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import redis

from ..bench.stress import PROCESSES, judge
from ..testing.server import Server
from .waiting import LOCKS

bench = pytest.importorskip(f"{LOCKS}.bench.drain", exc_type=ImportError)


def test_a_drain_serves_every_waiter_once_and_counts_what_it_took(
    server: Server, client: redis.Redis
) -> None:
    with ProcessPoolExecutor(bench.PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for lock in ("floor", "RedisLock", "python-redis-lock", "AsyncRedisLock"):
            found = bench.drain(pool, server.port, 8, 0.002, lock)
            assert found["seconds"] > 8 * 0.002
            assert found[bench.COMMANDS] >= 2
    client.flushall()  # the floor's tokens have no ttl


def test_two_holders_at_once_are_found() -> None:
    with pytest.raises(bench.Violation, match=r"held from 1.9 although held until 2.0"):
        bench.judge([(1.0, 2.0), (1.9, 3.0)], opened=0.5)


CLEAN = [{"left": {"waiters": 0}}] * PROCESSES


def good(fence: int, at: float, token: str = "") -> dict[str, Any]:
    return {"token": token or f"of {fence}", "fence": fence, "at": at}


@pytest.mark.parametrize(
    ("planted", "wrong"),
    [
        ([good(1, 0.0), good(1, 0.4), good(2, 0.5)], ""),
        ([good(1, 0.0), good(1, 1.0), good(2, 0.5)], "was good until"),
        ([good(1, 0.0), good(2, 0.5), good(1, 1.0)], "was good until"),
        ([good(2, 0.0), good(1, 0.5)], "the fence fell"),
        ([good(1, 0.0), good(1, 0.5, "another")], "the fence fell"),
        ([good(1, 0.0), good(2, 4.5)], "nobody had the lock for 4.50 s"),
        ([{"left": {"waiters": 1}}], "left behind"),
    ],
)
def test_the_judge_of_the_stress_finds_a_planted_violation(
    planted: list[dict[str, Any]], wrong: str
) -> None:
    found = judge([*planted, *CLEAN], ttl=3.0)["wrong"]
    assert any(wrong in each for each in found) if wrong else found == []


def test_the_judge_of_the_stress_misses_a_process_that_hung() -> None:
    assert "did not end by themselves" in judge(CLEAN[1:], ttl=3.0)["wrong"][0]
