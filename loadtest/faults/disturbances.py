"""The faults of chaos: those of `make faults` at any moment, several at a time, healed soon after.

A disturbance makes its fault, lets it last, heals it, and returns by what it was seen. Random
choices come from the rush's own random numbers. Raises NotFired where it was not seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random

from loadtest.faults import measure
from loadtest.faults.database import DbKill
from loadtest.faults.ended_node import Crash, ShutdownShort
from loadtest.faults.failover import Failover
from loadtest.faults.fault import Fault
from loadtest.faults.late_holder import Pause
from loadtest.faults.lost_keys import Eviction, RedisDown
from loadtest.faults.network import Partition
from loadtest.faults.refusing_redis import Busy, Stall
from loadtest.faults.testbed import Testbed
from loadtest.faults.trial import NotFired

Make = Callable[[Testbed, Random], str]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault of chaos.

    make            makes it, and heals it; returns the evidence
    on              what it needs for itself: `nodes`, `redis`, `proxies`, or nothing
    takes_the_lock  whether even a sound lock may be taken away, so that two hold it and the fence
                    decides
    """

    name: str
    make: Make
    on: str = ""
    takes_the_lock: bool = False


def lasts(kind: type[Fault], seconds: tuple[float, float], testbed: Testbed, chance: Random) -> str:
    """A fault of `make faults` for so long, on a node by chance where it is made on one."""
    fault = kind(testbed)
    fault.node = chance.randrange(2)
    try:
        if kind is Failover:
            fault.arm()
            time.sleep(chance.uniform(0, 1))  # the replica misses what is written meanwhile
        fault.fire()
        evidence = fault.prove()
        time.sleep(chance.uniform(*seconds))
        fault.require(fault.lasts(), "it ended too early")
    finally:
        fault.heal()
        fault.clean_up()
    return evidence


def evict(testbed: Testbed, chance: Random) -> str:
    """Several times, because a living holder loses its lock only at the right moment."""
    seen = []
    for _ in range(chance.randint(5, 8)):
        with suppress(NotFired):  # nothing was there to be evicted
            seen.append(lasts(Eviction, (0.05, 0.2), testbed, chance))
    if not seen:
        raise NotFired("nothing was evicted")
    return "; ".join(seen)


def lose_replies(to: bytes, testbed: Testbed, chance: Random) -> str:
    """To commands with these bytes in them."""
    proxies = [testbed.postgres] if to == b"COMMIT" else testbed.redis
    rules = [chance.choice(proxies).lose_reply(to) for _ in range(chance.randint(1, 10))]
    time.sleep(1.0)
    for rule in rules:
        rule.cancel()
    if not any(rule.fired for rule in rules):
        raise NotFired("no reply was lost")
    return f"{sum(rule.fired for rule in rules)} replies to {to.decode()} were dropped"


def delay_everything(testbed: Testbed, chance: Random) -> str:
    delay = chance.uniform(0.02, 0.1)
    proxies = [*testbed.redis, testbed.postgres]
    for proxy in proxies:
        proxy.delay(delay)
    try:
        began = time.monotonic()
        measure.ask(testbed.redis[0], "PING")
        took = time.monotonic() - began
        time.sleep(chance.uniform(0.5, 2))
    finally:
        for proxy in proxies:
            proxy.pass_on()
    evidence = f"to connect and to PING took {took * 1000:.0f} ms"
    if took < 2 * delay:
        raise NotFired(evidence)
    return evidence


#: Each as often as it is to come compared with others: those that break most locks twice.
DISTURBANCES = [
    Disturbance("kill_node", partial(lasts, Crash, (0, 1)), "nodes"),
    Disturbance("end_node", partial(lasts, ShutdownShort, (0, 0)), "nodes"),
    *2 * [Disturbance("pause_node", partial(lasts, Pause, (0.5, 2.5)), "nodes", True)],
    Disturbance("restart_redis", partial(lasts, RedisDown, (0, 1)), "redis", True),
    Disturbance("stall_redis", partial(lasts, Stall, (0.3, 3)), "redis", True),
    Disturbance("keep_redis_busy", partial(lasts, Busy, (0.1, 2)), "redis", True),
    Disturbance("fail_over", partial(lasts, Failover, (0, 0.2)), "redis", True),
    *2 * [Disturbance("evict", evict, "redis", True)],
    Disturbance("cut_redis", partial(lasts, Partition, (0.1, 2)), "proxies", True),
    Disturbance("lose_replies_of_redis", partial(lose_replies, b"lock:")),
    Disturbance("lose_replies_to_commit", partial(lose_replies, b"COMMIT")),
    Disturbance("delay_everything", delay_everything, "proxies", True),
    Disturbance("end_connections_to_postgres", partial(lasts, DbKill, (0, 0))),
]
