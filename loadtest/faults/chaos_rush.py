"""One rush of chaos: every sale at once, disturbances at random times, then the judge.

A disturbance is a fault of `make faults` at any moment, healed soon after; several come at a time.
It makes its fault, lets it last, heals it, and returns by what it was seen. Random choices come
from the rush's own random numbers. Raises NotFired where it was not seen.
"""

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from loadtest.faults import measure
from loadtest.faults.database import DbKill
from loadtest.faults.fault import Fault
from loadtest.faults.holder import Crash, Pause, ShutdownShort
from loadtest.faults.lost_lock import Eviction, Failover, RedisDown
from loadtest.faults.network import Partition
from loadtest.faults.refusing_redis import Busy, Stall
from loadtest.faults.runner import BUYERS, judged, reason
from loadtest.faults.testbed import TTL, Testbed, wait_for
from loadtest.faults.trial import NotFired
from loadtest.judge.intervals import Hold
from loadtest.judge.lock_rules import overlaps
from loadtest.judge.run import Cell
from loadtest.stack.client import Strategy

#: Seconds over which the buyers of a rush start, faster than they can be served with a hold; and
#: seconds over which its disturbances start.
COME_WITHIN = 1.2
DISTURB_WITHIN = 1.3
#: Seconds after the last disturbance for everybody to have a final answer.
DRAIN_TIMEOUT = 60.0
#: Why a rush shows nothing.
NOTHING = "no disturbance was seen to happen"
#: Why a sale does.
RAN_OUT = "this machine was too slow: a lease ran out before its holder ran again"
#: What a disturbance may need for itself.
NODES, REDIS, PROXIES = threading.Lock(), threading.Lock(), threading.Lock()
SHARED = nullcontext()


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault of chaos.

    make            makes it, and heals it; returns the evidence
    on              held meanwhile: the lock of the servers that it needs for itself
    takes_the_lock  whether even a sound lock may be taken away, so that two hold it and the fence
                    decides
    """

    name: str
    make: Callable[[Testbed, Random], str]
    on: AbstractContextManager[Any] = SHARED
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
    with ExitStack() as healing:
        for proxy in (*testbed.redis, testbed.postgres):
            healing.callback(proxy.pass_on)
            proxy.delay(delay)
        began = time.monotonic()
        measure.ask(testbed.redis[0], "PING")
        took = time.monotonic() - began
        time.sleep(chance.uniform(0.5, 2))
    evidence = f"to connect and to PING took {took * 1000:.0f} ms"
    if took < 2 * delay:
        raise NotFired(evidence)
    return evidence


#: Each as often as it is to come compared with others: those that break most locks twice.
DISTURBANCES = [
    Disturbance("kill_node", partial(lasts, Crash, (0, 1)), NODES),
    Disturbance("end_node", partial(lasts, ShutdownShort, (0, 0)), NODES),
    *2 * [Disturbance("pause_node", partial(lasts, Pause, (0.5, 2.5)), NODES, True)],
    Disturbance("restart_redis", partial(lasts, RedisDown, (0, 1)), REDIS, True),
    Disturbance("stall_redis", partial(lasts, Stall, (0.3, 3)), REDIS, True),
    Disturbance("keep_redis_busy", partial(lasts, Busy, (0.1, 2)), REDIS, True),
    Disturbance("fail_over", partial(lasts, Failover, (0, 0.2)), REDIS, True),
    *2 * [Disturbance("evict", evict, REDIS, True)],
    Disturbance("cut_redis", partial(lasts, Partition, (0.1, 2)), PROXIES, True),
    Disturbance("lose_replies_of_redis", partial(lose_replies, b"lock:")),
    Disturbance("lose_replies_to_commit", partial(lose_replies, b"COMMIT")),
    Disturbance("delay_everything", delay_everything, PROXIES, True),
    Disturbance("end_connections_to_postgres", partial(lasts, DbKill, (0, 0))),
]


class Chaos(Fault):
    """Whatever disturbs a rush: anybody's lock may be taken away."""

    name = "chaos"
    takes_the_lock = True
    two_servers = True

    def prove(self) -> str:
        raise NotFired(NOTHING)


@dataclass
class Rush:
    """One rush: its plan, and the outcome of its disturbances.

    hold_ms  milliseconds that each purchase spends between its check and its decrement
    seen     by name: by what a disturbance was seen to happen
    errors   what a disturbance raised that is no NotFired
    broke    why the rush could not be made; empty where it was
    cells    its sales, judged
    """

    number: int
    seed: int
    chosen: Sequence[Disturbance]
    hold_ms: int
    seen: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    broke: str = ""
    cells: list[Cell] = field(default_factory=list)
    seconds: float = 0.0

    def as_summary(self) -> dict[str, object]:
        """Its line in `summary.json`."""
        return {
            "rush": self.number,
            "seed": self.seed,
            "hold_ms": self.hold_ms,
            "disturbed": [one.name for one in self.chosen],
            "proven": self.seen,
            "seconds": self.seconds,
        }


def play(testbed: Testbed, rush: Rush, strategies: Sequence[Strategy]) -> None:
    """Make the rush for these strategies, and judge each of its sales. A rush in which no
    disturbance was seen to happen shows nothing: its sales are `unknown`, unless they are
    oversold."""
    chance, fault = Random(rush.seed), Chaos(testbed)
    fault.run = f"r{rush.number}_"
    testbed.new_events()  # those of the rushes before this one
    for strategy in strategies:
        fault.tries(strategy)
    buyers = []
    for trial in fault.trials:
        trial.open()
        for number in range(BUYERS):
            buyers.append(trial.buyer(f"buyer-{number:02}", hold_ms=rush.hold_ms))
    shops = [testbed.shop(node) for node in range(2)]
    chance.shuffle(buyers)
    begun = time.monotonic()
    with ThreadPoolExecutor(len(rush.chosen)) as pool:
        for one in rush.chosen:
            pool.submit(disturb, testbed, rush, one, Random(chance.getrandbits(32)))
        for place, buyer in enumerate(buyers):
            time.sleep(max(0.0, begun + COME_WITHIN * place / len(buyers) - time.monotonic()))
            buyer.start(*chance.sample(shops, 2))
    testbed.record_fault("chaos", "ok", "heal", "healed")
    if not wait_for(lambda: all(buyer.answered.is_set() for buyer in buyers), DRAIN_TIMEOUT):
        for buyer in buyers:
            buyer.give_up()
    wait_for(lambda: not any(trial.orphans() for trial in fault.trials), TTL + 0.5)
    for trial in fault.trials if not rush.seen else ():
        trial.miss(NOTHING)
    evidence = "; ".join(f"{name}: {seen}" for name, seen in rush.seen.items())
    rush.cells = judged(fault, evidence, left=())
    excused = {"overlap"} if any(one.takes_the_lock for one in rush.chosen) else set()
    for trial, cell in zip(fault.trials, rush.cells, strict=True):
        conclude(cell, trial.judgement.holds, excused)
        cell["hold_ms"], cell["round"] = rush.hold_ms, rush.number
    rush.seconds = round(time.monotonic() - begun, 2)


def conclude(cell: Cell, holds: Sequence[Hold], excused: set[str]) -> None:
    """Every finding is wrong, but two holders where a lock may be taken away. A sale shows nothing
    where they are all there is and each lease of the earlier one had ended by itself: its ttl was
    over, and its fence kept it from writing. This machine did not let it run."""
    cell["wrong"] = sorted(set(cell["violations"]) - excused)
    if (cell["verdict"], cell["wrong"]) == ("exact", ["overlap"]) and all(
        first.fence is not None
        and first.outcome == "expired"
        and second.start - first.start >= TTL * 1e9
        for first, second in overlaps(holds)
    ):
        cell["verdict"], cell["missing"], cell["wrong"] = "unknown", RAN_OUT, []
    cell["as_expected"] = cell["verdict"] == "exact" and not cell["wrong"]


def disturb(testbed: Testbed, rush: Rush, disturbance: Disturbance, chance: Random) -> None:
    """Make it at a random time. Those that need the same servers wait for each other; the others
    overlap."""
    time.sleep(chance.uniform(0, DISTURB_WITHIN))
    # A failure is recorded as `info`: the other disturbances of the rush may have happened.
    with disturbance.on:
        testbed.record_fault("chaos", "invoke", "fire", disturbance.name)
        kind = "info"
        try:
            what = rush.seen[disturbance.name] = disturbance.make(testbed, chance)
            kind = "ok"
        except Exception as error:
            what = reason(error)
            if not isinstance(error, NotFired):
                testbed.log.write(traceback.format_exc().encode())
                rush.errors.append(what)
    testbed.record_fault("chaos", kind, "prove", f"{disturbance.name}: {what}")
