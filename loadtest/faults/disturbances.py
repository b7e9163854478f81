"""The faults of chaos: each at any moment, several at a time, healed soon after.

A disturbance is a generator: it makes the fault, yields how many seconds the fault should last,
heals it, and returns the evidence that it happened, or an empty text. Random choices
come from the rush's own random numbers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from random import Random

import psutil
import redis

from loadtest.faults import measure
from loadtest.faults.busy import ENDLESS, is_busy, run_script
from loadtest.faults.eviction import Eviction
from loadtest.faults.failover import Failover
from loadtest.faults.testbed import VICTIMS, Testbed, until

Making = Generator[float, None, str]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault of chaos.

    make            makes it, and heals it
    on              what it needs for itself: `nodes`, `redis`, `proxies`, or nothing
    takes_the_lock  whether even a sound lock may be taken away, so that two hold it and the fence
                    decides
    weight          how often it comes compared with others: more for those that break most locks
    """

    name: str
    make: Callable[[Testbed, Random], Making]
    on: str
    takes_the_lock: bool
    weight: int = 1


DISTURBANCES: list[Disturbance] = []


def disturbance(
    on: str = "", *, takes_the_lock: bool = False, weight: int = 1
) -> Callable[[Callable[[Testbed, Random], Making]], Disturbance]:
    """Make a Disturbance of a generator, under its own name."""

    def register(make: Callable[[Testbed, Random], Making]) -> Disturbance:
        one = Disturbance(make.__name__, make, on, takes_the_lock, weight)
        DISTURBANCES.append(one)
        return one

    return register


@disturbance("nodes")
def kill_node(testbed: Testbed, chance: Random) -> Making:
    node = chance.randrange(2)
    process = testbed.nodes[node].process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    gone = until(lambda: not testbed.pids(node), 2)
    yield chance.uniform(0, 1)
    testbed.restart(node)
    return "no process of the node was left" if gone else ""


@disturbance("nodes")
def end_node(testbed: Testbed, chance: Random) -> Making:
    """SIGTERM, and a start when the node has answered everybody."""
    node = chance.randrange(2)
    before = testbed.pids(node)
    testbed.restart(node)
    yield 0.0
    gone = set(measure.states_of(before).values()) <= measure.ENDED
    return "the node's processes ended, and others serve" if gone else ""


@disturbance("nodes", takes_the_lock=True, weight=2)
def pause_node(testbed: Testbed, chance: Random) -> Making:
    node = chance.randrange(2)
    testbed.signal(node, signal.SIGSTOP)
    stopped = until(partial(_is_stopped, testbed, node), 2)
    yield chance.uniform(0.5, 2.5)
    stopped = stopped and _is_stopped(testbed, node)
    testbed.signal(node, signal.SIGCONT)
    return "every process of the node was in state T" if stopped else ""


def _is_stopped(testbed: Testbed, node: int) -> bool:
    states = measure.states_of(testbed.pids(node)).values()
    return set(states) == {psutil.STATUS_STOPPED}


@disturbance("redis", takes_the_lock=True)
def restart_redis(testbed: Testbed, chance: Random) -> Making:
    before = _run_id(testbed)
    testbed.main.stop(signal.SIGKILL)
    yield chance.uniform(0, 1)
    if not measure.answers(testbed.main):
        testbed.start_again(testbed.main)
    return "a new run_id" if _run_id(testbed) != before else ""


def _run_id(testbed: Testbed) -> str:
    return str(testbed.ask(testbed.main, "INFO", "server")["run_id"])


@disturbance("redis", takes_the_lock=True)
def stall_redis(testbed: Testbed, chance: Random) -> Making:
    pid = testbed.pid_of(testbed.main)

    def is_stopped() -> bool:
        return measure.states_of([pid])[pid] == psutil.STATUS_STOPPED

    os.kill(pid, signal.SIGSTOP)
    stopped = until(is_stopped, 2)
    yield chance.uniform(0.3, 3)
    stopped = stopped and is_stopped()
    os.kill(pid, signal.SIGCONT)
    return "Redis was in state T" if stopped else ""


@disturbance("redis", takes_the_lock=True)
def keep_redis_busy(testbed: Testbed, chance: Random) -> Making:
    testbed.ask(testbed.main, "CONFIG", "SET", "busy-reply-threshold", "20")
    script = run_script(testbed, ENDLESS)
    busy = until(lambda: is_busy(testbed), 2)
    yield chance.uniform(0.1, 2)
    try:
        testbed.ask(testbed.main, "SCRIPT", "KILL")
    except redis.ResponseError:  # NOTBUSY: it did not run, or ended early
        busy = False
    script.join(10)
    return "Redis answered BUSY" if busy else ""


@disturbance("redis", takes_the_lock=True)
def fail_over(testbed: Testbed, chance: Random) -> Making:
    before = _run_id(testbed)
    failover = Failover()
    failover.arm(testbed, [])
    yield chance.uniform(0, 1)  # the replica misses what is written now
    failover.fire(testbed, [])
    failover.heal(testbed, [])
    now = _run_id(testbed)
    used = any(measure.run_id(proxy, timeout=1) == now for proxy in testbed.redis)
    is_master = testbed.ask(testbed.main, "INFO", "replication")["role"] == "master"
    proven = used and is_master and now != before
    return "another run_id, a master, behind the proxy" if proven else ""


@disturbance("redis", takes_the_lock=True, weight=2)
def evict(testbed: Testbed, chance: Random) -> Making:
    """Several times, because a living holder loses its lock only at the right moment."""
    eviction = Eviction()
    evicted = 0
    for _ in range(chance.randint(5, 8)):
        eviction.fire(testbed, [])
        evicted += eviction.evicted(testbed) - eviction.before
        yield chance.uniform(0.05, 0.2)
    eviction.heal(testbed, [])
    return f"evicted_keys +{evicted}" if evicted else ""


@disturbance("proxies", takes_the_lock=True)
def cut_redis(testbed: Testbed, chance: Random) -> Making:
    proxy = chance.choice(testbed.redis)
    proxy.black_hole()
    cut = not testbed.answers(proxy)
    yield chance.uniform(0.1, 2)
    proxy.pass_on()
    return "no answer through the node's proxy" if cut else ""


@disturbance()
def lose_replies_of_redis(testbed: Testbed, chance: Random) -> Making:
    rules = [
        chance.choice(testbed.redis).lose_reply(b"lock:") for _ in range(chance.randint(1, 10))
    ]
    yield 1.0
    for rule in rules:
        rule.cancel()
    lost = sum(rule.fired for rule in rules)
    return f"{lost} replies were dropped" if lost else ""


@disturbance()
def lose_replies_to_commit(testbed: Testbed, chance: Random) -> Making:
    rules = [testbed.postgres.lose_reply(b"COMMIT") for _ in range(chance.randint(1, 10))]
    yield 1.0
    for rule in rules:
        rule.cancel()
    lost = sum(rule.fired for rule in rules)
    return f"{lost} replies to COMMIT were dropped" if lost else ""


@disturbance("proxies", takes_the_lock=True)
def delay_everything(testbed: Testbed, chance: Random) -> Making:
    seconds = chance.uniform(0.02, 0.1)
    proxies = [*testbed.redis, testbed.postgres]
    for proxy in proxies:
        proxy.delay(seconds)
    try:
        slow = measure.seconds_to_ping(testbed.redis[0]) >= seconds
    except redis.RedisError:
        slow = False
    yield chance.uniform(0.5, 2)
    for proxy in proxies:
        proxy.pass_on()
    return f"a PING took {seconds * 1000:.0f} ms or more" if slow else ""


@disturbance()
def end_connections_to_postgres(testbed: Testbed, chance: Random) -> Making:
    node = testbed.nodes[chance.choice([VICTIMS, 1 - VICTIMS])].name
    ended = testbed.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE datname = current_database() AND application_name = 'oversold-{node}' "
        "AND state <> 'idle'"
    )
    yield 0.0
    count = sum(bool(was_ended) for (was_ended,) in ended)
    return f"{count} backends were ended" if count else ""
