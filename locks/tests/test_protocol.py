"""The decisions that need no server: keys, how long a wake-up lets a waiter trust its lease, and
when the waiters of one process ask whether the holder's lease has ended."""

from __future__ import annotations

import random
from itertools import product

import pytest
import redis
from redis.crc import key_slot

from .. import RedisLock
from ..acquisition import STAGGER, Watch
from ..lease import new_token
from ..protocol import Answer, Wake, drift, keys_of, milliseconds, queue_args
from .waiting import held, waiter

TTL = 10.0
QUEUED = Answer(asked=1000.0, clock=5_000_000, fence=None, left=9.0)

NAMES = ["plain", "{}", "a{}b", "}", "{", "{x}y", "%7B", "a b\n", "größe 蘋果", "a" * 300]


@pytest.mark.parametrize("name", NAMES)
def test_all_keys_of_a_lock_share_a_slot_whatever_its_name(client: redis.Redis, name: str) -> None:
    assert len({key_slot(key) for key in keys_of(name)}) == 1
    with held(RedisLock(client, name, ttl=10)):
        other = waiter(RedisLock(client, name, ttl=10))
        assert set(client.keys()) == set(keys_of(name))
    other.result(5).release()


def test_different_names_have_different_keys() -> None:
    names = ["".join(letters) for n in (1, 2, 3, 4) for letters in product("{}%7Ba", repeat=n)]
    locks = {keys_of(name)[0] for name in names}
    assert len(locks) == len(names)
    assert all(len({key_slot(key) for key in keys_of(name)}) == 1 for name in names)


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


def watch_of(number: int) -> tuple[Watch, list[float]]:
    """A watch with so many waiters, and the second at which each of them asks."""
    watch = Watch()
    tokens = [new_token().encode() for _ in range(number)]
    watch.waiters.update(dict.fromkeys(tokens))
    return watch, [watch.ask_at(token) for token in tokens]


def test_the_first_asks_at_once_and_a_few_others_a_moment_later() -> None:
    _, asks = watch_of(10)
    assert asks == [0.001, *[STAGGER] * 9]


def test_thousands_do_not_ask_at_the_same_moment() -> None:
    """With one moment for all, 5,000 commands would go out in one turn of an event loop."""
    _, asks = watch_of(5000)
    assert asks[0] == 0.001
    assert min(asks[1:]) >= STAGGER
    for start in range(13):
        assert sum(start <= second < start + 1 for second in asks) < 600


def test_a_waiter_keeps_its_moment_and_it_moves_with_the_lease() -> None:
    watch, asks = watch_of(500)
    last = list(watch.waiters)[-1]
    assert watch.ask_at(last) == asks[-1]
    watch.until = 7.0
    assert abs(watch.ask_at(last) - asks[-1] - 7.0) < 1e-6
