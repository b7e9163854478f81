"""The faults of chaos, which may come at any moment and are healed soon after.

A disturbance is a generator: it makes the fault, yields how many seconds the fault should last, and
then heals it. Random choices come from the rush's own random numbers.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import redis

from loadtest.faults.busy import ENDLESS
from loadtest.faults.eviction import Eviction
from loadtest.faults.failover import Failover
from loadtest.faults.testbed import VICTIMS, Testbed

Disturbance = Callable[[Testbed, Random], Iterator[float]]


def kill_node(testbed: Testbed, chance: Random) -> Iterator[float]:
    node = chance.randrange(2)
    process = testbed.nodes[node].process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    yield chance.uniform(0, 1)
    testbed.restart(node)


def end_node(testbed: Testbed, chance: Random) -> Iterator[float]:
    """SIGTERM, and a start when the node has answered everybody."""
    node = chance.randrange(2)
    testbed.restart(node)
    yield 0.0


def pause_node(testbed: Testbed, chance: Random) -> Iterator[float]:
    pids = testbed.signal(chance.randrange(2), signal.SIGSTOP)
    yield chance.uniform(0.3, 3)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def restart_redis(testbed: Testbed, chance: Random) -> Iterator[float]:
    testbed.main.stop(signal.SIGKILL)
    yield chance.uniform(0, 1)
    testbed.start_again(testbed.main)


def stall_redis(testbed: Testbed, chance: Random) -> Iterator[float]:
    pid = testbed.pid_of(testbed.main)
    os.kill(pid, signal.SIGSTOP)
    yield chance.uniform(0.3, 3)
    os.kill(pid, signal.SIGCONT)


def keep_redis_busy(testbed: Testbed, chance: Random) -> Iterator[float]:
    testbed.ask(testbed.main, "CONFIG", "SET", "busy-reply-threshold", "20")

    def run() -> None:
        with suppress(redis.RedisError):  # SCRIPT KILL ends it with an error
            testbed.ask(testbed.main, "EVAL", ENDLESS, 0, timeout=30)

    script = threading.Thread(target=run, daemon=True)
    script.start()
    yield chance.uniform(0.1, 2)
    with suppress(redis.ResponseError):  # NOTBUSY: the script did not run yet
        testbed.ask(testbed.main, "SCRIPT", "KILL")
    script.join(10)


def fail_over(testbed: Testbed, chance: Random) -> Iterator[float]:
    failover = Failover()
    failover.arm(testbed, [])
    yield chance.uniform(0, 1)  # the replica misses what is written now
    failover.fire(testbed, [])
    failover.heal(testbed, [])


def evict(testbed: Testbed, chance: Random) -> Iterator[float]:
    eviction = Eviction()
    eviction.fire(testbed, [])
    yield 0.0
    eviction.heal(testbed, [])


def cut_redis(testbed: Testbed, chance: Random) -> Iterator[float]:
    proxy = chance.choice(testbed.redis)
    proxy.black_hole()
    yield chance.uniform(0.1, 2)
    proxy.pass_on()


def lose_replies_of_redis(testbed: Testbed, chance: Random) -> Iterator[float]:
    rules = [
        chance.choice(testbed.redis).lose_reply(b"lock:") for _ in range(chance.randint(1, 10))
    ]
    yield 1.0
    for rule in rules:
        rule.cancel()


def lose_replies_to_commit(testbed: Testbed, chance: Random) -> Iterator[float]:
    rules = [testbed.postgres.lose_reply(b"COMMIT") for _ in range(chance.randint(1, 10))]
    yield 1.0
    for rule in rules:
        rule.cancel()


def delay_everything(testbed: Testbed, chance: Random) -> Iterator[float]:
    proxies = [*testbed.redis, testbed.postgres]
    for proxy in proxies:
        proxy.delay(chance.uniform(0, 0.1))
    yield chance.uniform(0.5, 2)
    for proxy in proxies:
        proxy.pass_on()


def end_connections_to_postgres(testbed: Testbed, chance: Random) -> Iterator[float]:
    node = testbed.nodes[chance.choice([VICTIMS, 1 - VICTIMS])].name
    testbed.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE application_name = 'oversold-{node}' AND state <> 'idle'"
    )
    yield 0.0


DISTURBANCES: tuple[Disturbance, ...] = (
    kill_node,
    end_node,
    pause_node,
    restart_redis,
    stall_redis,
    keep_redis_busy,
    fail_over,
    evict,
    cut_redis,
    lose_replies_of_redis,
    lose_replies_to_commit,
    delay_everything,
    end_connections_to_postgres,
)
