"""Many waiters of one process: what the server does for them is linear, and their order is kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio

from .. import RedisLock
from ..testing.process import Process as Worker
from ..testing.server import Server, eventually
from .contract.doors import Door, single
from .waiting import held, in_thread, queued, waiter

WAITERS = 600
#: Commands that the server runs for each of them, its two scripts and what is in these: 29, and
#: some more where it asks again. Time would depend on what else the machine does.
COMMANDS = 40


def commands(client: redis.Redis) -> int:
    """How many the server has run, on its own and in scripts."""
    stats: Any = client.info("commandstats")
    return sum(each["calls"] for each in stats.values())


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_subscription_that_is_cut_at_a_release_costs_the_server_a_look_for_each_waiter(
    own_server: Server, kind: str
) -> None:
    """Not the square of them: other clients would wait for seconds."""
    door: Door = single(own_server.port)[kind]()
    lock, client = door.lock("crowd", ttl=30), own_server.client()

    def turn() -> bool:
        with lock.hold(wait=60):
            return True

    with held(lock) as lease:
        turns = [in_thread(turn) for _ in range(WAITERS)]
        eventually(lambda: client.zcard("lock:{crowd}:places") == WAITERS, within=60)
        client.config_resetstat()
        client.client_kill_filter(_type="pubsub")
        lease.release()
    assert [each.exception(60) for each in turns] == [None] * WAITERS
    assert commands(client) < COMMANDS * WAITERS
    door.close()


@pytest.mark.parametrize(
    "own", [{"ttl": 0.3, "renew": False}, {"ttl": 0.3, "max_hold": 0.3}], ids=["ttl", "max_hold"]
)
def test_a_lease_that_ends_by_itself_disturbs_no_order_while_its_process_lives(
    client: redis.Redis, worker: Callable[[], Worker], own: dict[str, Any]
) -> None:
    """A0 lets its lease end, as it was told to. The others of its process were there before B."""
    name = "ends by itself"
    lock = RedisLock(client, name, ttl=30)
    theirs = RedisLock(client, name, **own)
    served: list[str] = []

    def turn(who: str, lock: RedisLock) -> None:
        with lock.hold(wait=30):
            served.append(who)

    b, c = worker(), worker()
    with held(lock) as lease:
        first = waiter(theirs)
        rest = []
        for number in range(1, 4):
            rest.append(in_thread(partial(turn, f"A{number}", lock)))
            queued(lock, 1 + number)
        b.send("acquire", name=name, ttl=30, wait=30)
        queued(lock, 5)
        lease.release()
        mine = first.result(5)  # and never released
        eventually(lambda: mine.lost)
        eventually(lambda: client.pttl("lock:{ends by itself}") == -2)
        assert c.ask("acquire", name=name, ttl=30, wait=0) == "LockTimeout"  # the first to notice
        for each in rest:
            with suppress(TimeoutError):
                each.result(2)
        assert served == ["A1", "A2", "A3"]
        b.answer()
        assert b.ask("release") == "released"


def test_the_waiters_of_a_process_that_was_paused_have_their_places_back(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    """All of them, when the first one asks, although they would have slept for much longer."""
    lock = RedisLock(client, "places back", ttl=1)
    process = worker()
    with held(lock) as lease:
        lease.extend(300)  # so long do they think that they may sleep
        process.ask("crowd", name="places back", ttl=1, wait=60, waiters=8)
        queued(lock, 8)
        before = lock.inspect().waiters
        other = waiter(lock, wait=30)
        process.pause()
        lease.release()
        eventually(lambda: not lock.locked())
        assert lock.try_acquire() is None  # the first to notice
        mine = other.result(5)
    process.resume()
    queued(lock, 8)
    assert lock.inspect().waiters == before
    mine.release()
    eventually(lambda: not lock.locked() and not lock.inspect().waiters)
