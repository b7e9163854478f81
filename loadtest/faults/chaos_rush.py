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
from loadtest.faults.cells import judge_trials, read_until_answered
from loadtest.faults.fault import Fault
from loadtest.faults.kinds.busy import BusyFault
from loadtest.faults.kinds.crash import CrashFault
from loadtest.faults.kinds.db_kill import DbKillFault
from loadtest.faults.kinds.eviction import EvictionFault
from loadtest.faults.kinds.failover import FailoverFault
from loadtest.faults.kinds.partition import PartitionFault
from loadtest.faults.kinds.pause import PauseFault
from loadtest.faults.kinds.redis_down import RedisDownFault
from loadtest.faults.kinds.shutdown import ShutdownShortFault
from loadtest.faults.kinds.stall import StallFault
from loadtest.faults.runner import describe_error
from loadtest.faults.testbed import TTL, Testbed, wait_for
from loadtest.faults.trial import BUYERS, NotFired
from loadtest.judge.intervals import LockHold
from loadtest.judge.lock_rules import find_overlaps
from loadtest.judge.run import Cell
from loadtest.stack.client import StrategyFacts

#: Buyers start over this time: faster than they can be served with a hold.
ARRIVAL_SECONDS = 1.2
#: Disturbances start over this time.
DISTURBANCE_START_SECONDS = 1.3
#: Seconds after the last disturbance for everybody to have a final answer.
DRAIN_TIMEOUT_SECONDS = 60.0
#: Why a rush shows nothing.
NOTHING = "no disturbance was seen to happen"
#: Why a sale does.
RAN_OUT = "this machine was too slow: a lease ran out before its holder ran again"
#: What a disturbance may need for itself.
NODES = threading.Lock()
REDIS = threading.Lock()
PROXIES = threading.Lock()
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


def make_and_hold(
    kind: type[Fault], seconds: tuple[float, float], testbed: Testbed, chance: Random
) -> str:
    """Make a fault of `make faults` for some of `seconds`, on a random node if it needs one."""
    fault = kind(testbed)
    fault.node = chance.randrange(2)
    try:
        if kind is FailoverFault:
            fault.arm()
            time.sleep(chance.uniform(0, 1))  # the replica misses what is written meanwhile
        fault.fire()
        evidence = fault.prove()
        time.sleep(chance.uniform(*seconds))
        fault.require(fault.is_in_effect(), "it ended too early")
    finally:
        fault.heal()
        fault.clean_up()
    return evidence


def evict(testbed: Testbed, chance: Random) -> str:
    """Evict several times: a living holder loses its lock only at the right moment."""
    evictions = []
    for _ in range(chance.randint(5, 8)):
        with suppress(NotFired):  # nothing was there to be evicted
            evictions.append(make_and_hold(EvictionFault, (0.05, 0.2), testbed, chance))
    if not evictions:
        raise NotFired("nothing was evicted")
    return "; ".join(evictions)


def lose_replies(to: bytes, testbed: Testbed, chance: Random) -> str:
    """Drop the replies to some commands that contain the bytes `to`."""
    proxies = testbed.redis
    if to == b"COMMIT":
        proxies = [testbed.database_proxy]
    rules = [chance.choice(proxies).lose_reply(to) for _ in range(chance.randint(1, 10))]
    time.sleep(1.0)
    for rule in rules:
        rule.cancel()
    if not any(rule.fired for rule in rules):
        raise NotFired("no reply was lost")
    return f"{sum(rule.fired for rule in rules)} replies to {to.decode()} were dropped"


def delay_everything(testbed: Testbed, chance: Random) -> str:
    """Delay the bytes of all proxies for a while."""
    delay = chance.uniform(0.02, 0.1)
    with ExitStack() as healing:
        for proxy in testbed.redis + [testbed.database_proxy]:
            healing.callback(proxy.pass_on)
            proxy.delay(delay)
        began = time.monotonic()
        measure.run_command(testbed.redis[0], "PING")
        took = time.monotonic() - began
        time.sleep(chance.uniform(0.5, 2))
    evidence = f"to connect and to PING took {took * 1000:.0f} ms"
    if took < 2 * delay:
        raise NotFired(evidence)
    return evidence


PAUSE_NODE = Disturbance("pause_node", partial(make_and_hold, PauseFault, (0.5, 2.5)), NODES, True)
EVICT = Disturbance("evict", evict, REDIS, True)
#: Relative frequencies: disturbances that break most locks are listed twice.
DISTURBANCES = [
    Disturbance("kill_node", partial(make_and_hold, CrashFault, (0, 1)), NODES),
    Disturbance("end_node", partial(make_and_hold, ShutdownShortFault, (0, 0)), NODES),
    PAUSE_NODE,
    PAUSE_NODE,
    Disturbance("restart_redis", partial(make_and_hold, RedisDownFault, (0, 1)), REDIS, True),
    Disturbance("stall_redis", partial(make_and_hold, StallFault, (0.3, 3)), REDIS, True),
    Disturbance("keep_redis_busy", partial(make_and_hold, BusyFault, (0.1, 2)), REDIS, True),
    Disturbance("fail_over", partial(make_and_hold, FailoverFault, (0, 0.2)), REDIS, True),
    EVICT,
    EVICT,
    Disturbance("cut_redis", partial(make_and_hold, PartitionFault, (0.1, 2)), PROXIES, True),
    Disturbance("lose_replies_of_redis", partial(lose_replies, b"lock:")),
    Disturbance("lose_replies_to_commit", partial(lose_replies, b"COMMIT")),
    Disturbance("delay_everything", delay_everything, PROXIES, True),
    Disturbance("end_connections_to_postgres", partial(make_and_hold, DbKillFault, (0, 0))),
]


class ChaosFault(Fault):
    """Whatever disturbs a rush: anybody's lock may be taken away."""

    name = "chaos"
    takes_the_lock = True
    two_servers = True

    def prove(self) -> str:
        raise NotFired(NOTHING)


@dataclass
class ChaosRush:
    """One rush: its plan, and the outcome of its disturbances.

    hold_ms  milliseconds that each purchase spends between its check and its decrement
    evidence by name: the evidence that a disturbance happened
    errors   what a disturbance raised that is no NotFired
    broke    why the rush could not be made; empty where it was
    cells    its sales, judged
    """

    number: int
    seed: int
    chosen: Sequence[Disturbance]
    hold_ms: int
    evidence: dict[str, str] = field(default_factory=dict)
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
            "disturbed": [disturbance.name for disturbance in self.chosen],
            "proven": self.evidence,
            "seconds": self.seconds,
            "broke": self.broke,
        }


def play(testbed: Testbed, rush: ChaosRush, strategies: Sequence[StrategyFacts]) -> None:
    """Make the rush for these strategies, and judge each of its sales. A rush in which no
    disturbance was seen to happen shows nothing: its sales are `unknown`, unless they are
    oversold."""
    chance = Random(rush.seed)
    fault = ChaosFault(testbed)
    fault.unique_id = f"r{rush.number}_"
    testbed.new_events()  # those of the rushes before this one
    for strategy in strategies:
        fault.add_trial(strategy)
    buyers = []
    for trial in fault.trials:
        read_until_answered(trial.open)
        for number in range(BUYERS):
            buyers.append(trial.add_buyer(f"buyer-{number:02}", hold_ms=rush.hold_ms))
    shops = [testbed.shop(node) for node in range(2)]
    chance.shuffle(buyers)
    began = time.monotonic()
    with ThreadPoolExecutor(len(rush.chosen)) as pool:
        for disturbance in rush.chosen:
            pool.submit(disturb, testbed, rush, disturbance, Random(chance.getrandbits(32)))
        for place, buyer in enumerate(buyers):
            time.sleep(max(0.0, began + ARRIVAL_SECONDS * place / len(buyers) - time.monotonic()))
            buyer.start(*chance.sample(shops, 2))
    testbed.record_fault("chaos", "ok", "heal", "healed")
    if not wait_for(lambda: all(buyer.is_done.is_set() for buyer in buyers), DRAIN_TIMEOUT_SECONDS):
        for buyer in buyers:
            buyer.give_up()

    def no_orphans() -> bool:
        return not any(trial.lock_keys_on_server() for trial in fault.trials)

    read_until_answered(partial(wait_for, no_orphans, TTL + 0.5))
    if not rush.evidence:
        for trial in fault.trials:
            trial.mark_inconclusive(NOTHING)
    evidence = "; ".join(f"{name}: {text}" for name, text in rush.evidence.items())
    rush.cells = judge_trials(fault, evidence, leaked_keys=())
    excused = set()
    if any(disturbance.takes_the_lock for disturbance in rush.chosen):
        excused.add("overlap")
    for trial, cell in zip(fault.trials, rush.cells, strict=True):
        conclude(cell, trial.judgement.holds, excused)
        cell["hold_ms"] = rush.hold_ms
        cell["round"] = rush.number
    rush.seconds = round(time.monotonic() - began, 2)


def conclude(cell: Cell, holds: Sequence[LockHold], excused: set[str]) -> None:
    """Judge a cell: every finding is wrong, except two holders where a lock may be taken away.

    A sale shows nothing if its only finding is two holders, and each lease of an earlier one had
    ended by itself: this machine did not let the holder run before its ttl was over.
    """
    cell["wrong"] = sorted(set(cell["violations"]) - excused)
    has_only_overlaps = cell["verdict"] == "exact" and cell["wrong"] == ["overlap"]
    if has_only_overlaps and all(_ran_out(first, second) for first, second in find_overlaps(holds)):
        cell["verdict"] = "unknown"
        cell["missing"] = RAN_OUT
        cell["wrong"] = []
    cell["as_expected"] = cell["verdict"] == "exact" and not cell["wrong"]


def _ran_out(first: LockHold, second: LockHold) -> bool:
    """Return whether the first lease had ended by its ttl when the second one was granted.

    A fence is the microsecond of Redis's clock at the grant, or later. The recorded times are those
    at which a holder ran again after its grant, which a busy machine may delay.
    """
    if first.fence is None or first.release_outcome != "expired":
        return False
    ran_out_by_fences = second.fence is not None and second.fence - first.fence >= TTL * 1e6
    return ran_out_by_fences or second.start - first.start >= TTL * 1e9


def disturb(testbed: Testbed, rush: ChaosRush, disturbance: Disturbance, chance: Random) -> None:
    """Make a disturbance at a random time.

    Disturbances that need the same servers wait for each other; all others overlap.
    """
    time.sleep(chance.uniform(0, DISTURBANCE_START_SECONDS))
    # A failure is recorded as `info`: the other disturbances of the rush may have happened.
    with disturbance.on:
        testbed.record_fault("chaos", "invoke", "fire", disturbance.name)
        kind = "info"
        try:
            outcome = disturbance.make(testbed, chance)
            rush.evidence[disturbance.name] = outcome
            kind = "ok"
        except Exception as error:
            outcome = describe_error(error)
            if not isinstance(error, NotFired):
                testbed.log.write(traceback.format_exc().encode())
                rush.errors.append(outcome)
    testbed.record_fault("chaos", kind, "prove", f"{disturbance.name}: {outcome}")
