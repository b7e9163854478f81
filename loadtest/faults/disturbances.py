"""What chaos does to the stack: each a fault that comes at any moment and is healed again.

A disturbance is a generator: it does its harm, yields the seconds that the harm is to last, and
then puts everything back. It draws what it leaves to chance from the run's own random numbers.
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
from loadtest.faults.testbed import VICTIMS, Stage

Disturbance = Callable[[Stage, Random], Iterator[float]]


def kill_node(stage: Stage, chance: Random) -> Iterator[float]:
    node = chance.randrange(2)
    process = stage.nodes[node].process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    yield chance.uniform(0, 1)
    stage.restart(node)


def end_node(stage: Stage, chance: Random) -> Iterator[float]:
    """SIGTERM, and as long as it takes everybody in it to be answered."""
    node = chance.randrange(2)
    stage.restart(node)
    yield 0.0


def pause_node(stage: Stage, chance: Random) -> Iterator[float]:
    pids = stage.signal(chance.randrange(2), signal.SIGSTOP)
    yield chance.uniform(0.3, 3)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def restart_redis(stage: Stage, chance: Random) -> Iterator[float]:
    stage.main.stop(signal.SIGKILL)
    yield chance.uniform(0, 1)
    stage.start_again(stage.main)


def stall_redis(stage: Stage, chance: Random) -> Iterator[float]:
    pid = stage.pid_of(stage.main)
    os.kill(pid, signal.SIGSTOP)
    yield chance.uniform(0.3, 3)
    os.kill(pid, signal.SIGCONT)


def keep_redis_busy(stage: Stage, chance: Random) -> Iterator[float]:
    stage.ask(stage.main, "CONFIG", "SET", "busy-reply-threshold", "20")

    def run() -> None:
        with suppress(redis.RedisError):  # it is killed, which is what we wait for
            stage.ask(stage.main, "EVAL", ENDLESS, 0, timeout=30)

    script = threading.Thread(target=run, daemon=True)
    script.start()
    yield chance.uniform(0.1, 2)
    with suppress(redis.ResponseError):  # NOTBUSY: it never came to run
        stage.ask(stage.main, "SCRIPT", "KILL")
    script.join(10)


def fail_over(stage: Stage, chance: Random) -> Iterator[float]:
    failover = Failover()
    failover.arm(stage, [])
    yield chance.uniform(0, 1)  # of writes that the replica never hears of
    failover.fire(stage, [])
    failover.heal(stage, [])


def evict(stage: Stage, chance: Random) -> Iterator[float]:
    eviction = Eviction()
    eviction.fire(stage, [])
    yield 0.0
    eviction.heal(stage, [])


def cut_redis(stage: Stage, chance: Random) -> Iterator[float]:
    way = chance.choice(stage.redis)
    way.black_hole()
    yield chance.uniform(0.1, 2)
    way.pass_on()


def lose_replies_of_redis(stage: Stage, chance: Random) -> Iterator[float]:
    rules = [chance.choice(stage.redis).lose_reply(b"lock:") for _ in range(chance.randint(1, 10))]
    yield 1.0
    for rule in rules:
        rule.cancel()


def lose_replies_to_commit(stage: Stage, chance: Random) -> Iterator[float]:
    rules = [stage.postgres.lose_reply(b"COMMIT") for _ in range(chance.randint(1, 10))]
    yield 1.0
    for rule in rules:
        rule.cancel()


def delay_everything(stage: Stage, chance: Random) -> Iterator[float]:
    ways = [*stage.redis, stage.postgres]
    for way in ways:
        way.delay(chance.uniform(0, 0.1))
    yield chance.uniform(0.5, 2)
    for way in ways:
        way.pass_on()


def end_connections_to_postgres(stage: Stage, chance: Random) -> Iterator[float]:
    node = stage.nodes[chance.choice([VICTIMS, 1 - VICTIMS])].name
    stage.sql(
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
