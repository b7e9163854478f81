"""The decisions that need no server: keys, and how long a wake-up lets a waiter trust its lease."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import redis

from .. import RedisLock
from ..protocol import Answer, Wake, drift, keys_of, milliseconds, queue_args
from ..testing.server import Server, eventually
from .waiting import held, waiter

TTL = 10.0
QUEUED = Answer(asked=1000.0, clock=5_000_000, fence=None, left=9.0)

NAMES = ["plain", "{}", "a{}b", "}", "{", "{x}y", "%7B", "a b\n", "größe 蘋果", "a" * 300]


def slot(key: bytes) -> int:
    """The cluster slot of a key, as the Redis cluster specification computes it."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % 16384


@pytest.mark.parametrize("name", NAMES)
def test_all_keys_of_a_lock_share_a_slot_whatever_its_name(client: redis.Redis, name: str) -> None:
    assert len({slot(key) for key in keys_of(name)}) == 1
    with held(RedisLock(client, name, ttl=10)):
        other = waiter(RedisLock(client, name, ttl=10))
        assert set(client.keys()) == set(keys_of(name))
    other.result(5).release()


def test_a_server_in_cluster_mode_accepts_every_name(tmp_path: Path) -> None:
    """It refuses a script whose keys are in different slots."""
    server = Server("--cluster-enabled", "yes", "--dir", str(tmp_path))
    try:
        client = server.client()
        run: Any = client.execute_command
        run("CLUSTER ADDSLOTS", *range(16384))
        eventually(lambda: run("CLUSTER INFO")["cluster_state"] == "ok")
        for name in NAMES:
            lock = RedisLock(client, name, ttl=10)
            with held(lock):
                other = waiter(lock)
            other.result(5).release()
    finally:
        server.stop()


def test_the_slot_arithmetic_is_that_of_the_specification() -> None:
    assert (slot(b"123456789"), slot(b"foo{hash_tag}"), slot(b"hash_tag")) == (12739, 2515, 2515)


def test_different_names_have_different_keys() -> None:
    names = ["".join(letters) for n in (1, 2, 3, 4) for letters in product("{}%7Ba", repeat=n)]
    locks = {keys_of(name)[0] for name in names}
    assert len(locks) == len(names)
    assert all(len({slot(key) for key in keys_of(name)}) == 1 for name in names)


def test_no_time_is_rounded_to_zero_or_to_an_earlier_end() -> None:
    assert milliseconds(0.0004) == 1
    assert queue_args(b"c", 0.0004, 0.0, 0)[2:4] == (1, 0)
    assert queue_args(b"c", float("inf"), float("inf"), 0)[2:4] == (-1, -1)


def test_a_trusted_wake_up_never_outlives_the_server_s_lease() -> None:
    """The lock is handed over `waited` after the server queued us, which was `sending` after we
    asked; the wake-up is read `delay` later. On our clock the key expires at `ends`."""
    chance = random.Random(7)
    for _ in range(5000):
        waited = chance.choice([0, chance.uniform(0, 1), chance.uniform(0, 600)])
        delay, sending = chance.uniform(0, 2 * TTL), chance.uniform(0, 0.2)
        given = QUEUED.asked + sending + waited
        ends = given + TTL
        wake = Wake(1, QUEUED.clock + int(waited * 1e6))
        deadline = wake.deadline(QUEUED, TTL, given + delay)
        slack = drift(waited + delay + sending)
        if delay > TTL / 3 or slack > TTL / 3 + 0.001:
            assert deadline is None
        elif delay + sending < TTL / 3 - 0.001 and slack < TTL / 3 - 0.001:
            assert deadline is not None
            cautious = sending + drift(TTL) + drift(waited + delay + sending)
            assert deadline > ends - cautious - 0.0001
        assert deadline is None or deadline <= ends


@pytest.mark.parametrize(
    ("clock", "now"),
    [
        (QUEUED.clock - 1, 1001.0),  # granted before we queued: of an earlier turn
        (QUEUED.clock + 60_000_000, 1001.0),  # the server's clock jumped ahead
        (QUEUED.clock + 1_000_000, 1061.0),  # it jumped back, or we were paused
    ],
)
def test_a_wake_up_that_the_clocks_cannot_explain_is_asked_about(clock: int, now: float) -> None:
    assert Wake(1, clock).deadline(QUEUED, TTL, now) is None
