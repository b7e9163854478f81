"""The floor of the benchmark's drain is what it says: threads in turn, one message for each."""

from __future__ import annotations

import pytest
import redis

from ..testing.process import LOCKS, Process
from ..testing.server import Server


def test_the_relay_wakes_each_thread_once_and_one_after_the_other(
    server: Server, client: redis.Redis
) -> None:
    pytest.importorskip("redis_lock")  # a contender of the benchmark
    from ..bench import scenarios

    workers = [Process(server.port, f"{LOCKS}.bench.worker") for _ in range(scenarios.PROCESSES)]
    try:
        client.config_resetstat()
        found = scenarios.relay(client, workers, waiters=8, hold=0.002)
    finally:
        for worker in workers:
            worker.kill()
    assert client.info("commandstats")["cmdstat_publish"]["calls"] == 8
    assert found["seconds"] > 8 * 0.002  # scenarios.Violation if two had the turn at once
    assert found["sent_per_acquisition"] == 1
    assert found["overtakes_max"] == 0
