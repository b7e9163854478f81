"""One rush of `make chaos`: all strategies sell at the same time, while faults are injected.

A rush has a trial for each strategy, which is one sale under this strategy. A disturbance is a
fault of `make faults` that is injected at a random moment and healed after a random time.
Disturbances may overlap. After the last one the sales are judged. All random choices come from a
generator with the seed of the rush.
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
from loadtest.faults.cells import judge_trials, retry_until_answered
from loadtest.faults.fault import Fault
from loadtest.faults.fault_buyer import FaultBuyer
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
from loadtest.faults.runner import EXPIRY_SLACK_SECONDS, describe_error
from loadtest.faults.testbed import RIVALS_NODE, TTL_SECONDS, VICTIMS_NODE, Testbed, wait_for
from loadtest.faults.trial import BUYERS, NotFired
from loadtest.judge.intervals import LockHold
from loadtest.judge.lock_rules import find_overlaps
from loadtest.judge.run import Cell
from loadtest.stack.client import StrategyFacts

#: All buyers start within this time. If each purchase pauses for some milliseconds (hold_ms),
#: buyers arrive faster than the shop serves them.
ARRIVAL_SECONDS = 1.2
#: All disturbances start within this time: while buyers arrive, or just after the last one.
DISTURBANCE_START_SECONDS = 1.3
#: The shortest and the longest time for which one of several evictions lasts.
EVICTION_SECONDS = (0.05, 0.2)
#: How long to wait, after the last disturbance, for every buyer's final answer.
LAST_ANSWER_TIMEOUT_SECONDS = 60.0
#: The reason why a whole rush is inconclusive.
NO_DISTURBANCE_SEEN_MESSAGE = "no disturbance was seen to happen"
#: The reason why one sale of a rush is inconclusive, although there was a disturbance.
LEASE_RAN_OUT_MESSAGE = "this machine was too slow: a lease ran out before its holder ran again"
# Disturbances of the same servers must not overlap. Each of them holds the lock of its servers.
NODES_LOCK = threading.Lock()
REDIS_LOCK = threading.Lock()
PROXIES_LOCK = threading.Lock()
NO_LOCK = nullcontext()


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault of chaos.

    name            the name in `summary.json`
    inject          injects the fault, waits for a while, and heals the fault. Returns the evidence
                    that the fault happened, or raises NotFired
    server_lock     held while `inject` runs, so that no other disturbance uses the same servers
    takes_the_lock  whether the fault may take even a sound lock away from its holder. Then two
                    buyers may hold the lock, and the fence refuses the write of the first holder
    """

    name: str
    inject: Callable[[Testbed, Random], str]
    server_lock: AbstractContextManager[Any] = NO_LOCK
    takes_the_lock: bool = False


def inject_fault(
    fault_class: type[Fault], duration_range: tuple[float, float], testbed: Testbed, rng: Random
) -> str:
    """Inject a fault on a random node, and heal it after a random time.

    duration_range  the shortest and the longest time between the proof of the fault and its end, in
                    seconds

    Returns the evidence that the fault happened. Raises NotFired if there is none.
    """
    fault = fault_class(testbed)
    fault.node = rng.randrange(2)  # node A or node B
    try:
        if fault_class is FailoverFault:
            fault.arm()  # the other faults of chaos need no preparation
            time.sleep(rng.uniform(0, 1))  # the replica gets no writes in this time
        fault.fire()
        evidence = fault.prove()
        time.sleep(rng.uniform(*duration_range))
        fault.require(fault.is_in_effect(), "the fault ended too early")
    finally:
        fault.heal()
        fault.clean_up()
    return evidence


def evict_repeatedly(testbed: Testbed, rng: Random) -> str:
    """Make Redis evict keys several times, because not every eviction hits a lock that is held.

    Returns the evidence. Raises NotFired if Redis had no key to evict in any of these attempts.
    """
    evidence = []
    for _ in range(rng.randint(5, 8)):
        with suppress(NotFired):  # raised if Redis had no key to evict
            evidence.append(inject_fault(EvictionFault, EVICTION_SECONDS, testbed, rng))
    if not evidence:
        raise NotFired("nothing was evicted")
    return "; ".join(evidence)


def lose_replies(text: bytes, testbed: Testbed, rng: Random) -> str:
    """Within one second, drop the replies to at most ten commands that contain `text`.

    If `text` is COMMIT, these are commands of node A to the database. Otherwise they are commands
    of both nodes to Redis. Returns the evidence. Raises NotFired if no reply was dropped.
    """
    proxies = testbed.redis_proxies
    if text == b"COMMIT":
        proxies = [testbed.database_proxy]
    # Each call of lose_reply() adds a rule to the proxy, which drops one reply.
    drop_rules = [rng.choice(proxies).lose_reply(text) for _ in range(rng.randint(1, 10))]
    time.sleep(1.0)
    for drop_rule in drop_rules:
        drop_rule.cancel()
    dropped_count = sum(drop_rule.fired for drop_rule in drop_rules)
    if not dropped_count:
        raise NotFired("no reply was lost")
    return f"{dropped_count} replies to {text.decode()} were dropped"


def delay_everything(testbed: Testbed, rng: Random) -> str:
    """Slow the network down for 0.5 to 2 seconds: deliver each chunk of bytes 20 to 100 ms later.

    The slow connections are those of both nodes to Redis, and those of node A to the database.
    Returns the evidence. Raises NotFired if a PING was not delayed.
    """
    delay_seconds = rng.uniform(0.02, 0.1)
    with ExitStack() as undo:
        for proxy in testbed.redis_proxies + [testbed.database_proxy]:
            undo.callback(proxy.pass_on)
            proxy.delay(delay_seconds)
        started_at = time.monotonic()
        measure.run_command(testbed.redis_proxies[0], "PING")
        ping_seconds = time.monotonic() - started_at
        time.sleep(rng.uniform(0.5, 2))
    evidence = f"a connection and a PING took {ping_seconds * 1000:.0f} ms"
    if ping_seconds < 2 * delay_seconds:  # one delay for each direction
        raise NotFired(evidence)
    return evidence


def make_injector(
    fault_class: type[Fault], *, min_seconds: float, max_seconds: float
) -> Callable[[Testbed, Random], str]:
    """Return a function that injects a fault on a random node, and heals it after a random time.

    min_seconds, max_seconds  bounds of the time from the moment at which the fault was seen to work
                              until it is healed
    """
    return partial(inject_fault, fault_class, (min_seconds, max_seconds))


PAUSE_NODE = Disturbance(
    "pause_node",
    make_injector(PauseFault, min_seconds=0.5, max_seconds=2.5),
    NODES_LOCK,
    takes_the_lock=True,
)
EVICT = Disturbance("evict", evict_repeatedly, REDIS_LOCK, takes_the_lock=True)
#: The disturbances, some of which each rush gets at random. Those that break most locks are listed
#: twice, so that they are chosen more often.
DISTURBANCES = [
    Disturbance("kill_node", make_injector(CrashFault, min_seconds=0, max_seconds=1), NODES_LOCK),
    Disturbance(
        "end_node", make_injector(ShutdownShortFault, min_seconds=0, max_seconds=0), NODES_LOCK
    ),
    PAUSE_NODE,
    PAUSE_NODE,
    Disturbance(
        "restart_redis",
        make_injector(RedisDownFault, min_seconds=0, max_seconds=1),
        REDIS_LOCK,
        takes_the_lock=True,
    ),
    Disturbance(
        "stall_redis",
        make_injector(StallFault, min_seconds=0.3, max_seconds=3),
        REDIS_LOCK,
        takes_the_lock=True,
    ),
    Disturbance(
        "keep_redis_busy",
        make_injector(BusyFault, min_seconds=0.1, max_seconds=2),
        REDIS_LOCK,
        takes_the_lock=True,
    ),
    Disturbance(
        "fail_over",
        make_injector(FailoverFault, min_seconds=0, max_seconds=0.2),
        REDIS_LOCK,
        takes_the_lock=True,
    ),
    EVICT,
    EVICT,
    Disturbance(
        "cut_redis",
        make_injector(PartitionFault, min_seconds=0.1, max_seconds=2),
        PROXIES_LOCK,
        takes_the_lock=True,
    ),
    Disturbance("lose_replies_of_redis", partial(lose_replies, b"lock:")),
    Disturbance("lose_replies_to_commit", partial(lose_replies, b"COMMIT")),
    Disturbance("delay_everything", delay_everything, PROXIES_LOCK, takes_the_lock=True),
    Disturbance(
        "end_connections_to_postgres", make_injector(DbKillFault, min_seconds=0, max_seconds=0)
    ),
]


class ChaosFault(Fault):
    """A stand-in for all disturbances of a rush: the trials are judged as if one fault hit them.

    It has only the attributes that the judge reads. The disturbances inject the real faults.
    """

    name = "chaos"
    takes_the_lock = True
    hits_any_buyer = True
    has_two_lock_servers = True  # during `fail_over`

    def prove(self) -> str:
        """Raise NotFired. Nothing calls this method: each disturbance proves its own fault."""
        raise NotFired(NO_DISTURBANCE_SEEN_MESSAGE)


@dataclass
class ChaosRush:
    """One rush (the sales of all strategies at the same time), its plan and its outcome.

    number              the rush's number in the run, from 1 on
    seed                the seed of its random choices
    disturbances        the disturbances that were chosen at random for the rush
    hold_ms             milliseconds that each purchase spends between its check and its decrement
    evidence            name of a disturbance -> the evidence that it happened
    disturbance_errors  the errors of disturbances, except NotFired
    failure             why the rush could not be run to its end; empty if it was
    cells               the judged sales
    seconds             the duration of the rush
    """

    number: int
    seed: int
    disturbances: Sequence[Disturbance]
    hold_ms: int
    evidence: dict[str, str] = field(default_factory=dict)
    disturbance_errors: list[str] = field(default_factory=list)
    failure: str = ""
    cells: list[Cell] = field(default_factory=list)
    seconds: float = 0.0

    def as_summary(self) -> dict[str, object]:
        """Return the entry of this rush in `summary.json`."""
        return {
            "rush": self.number,
            "seed": self.seed,
            "hold_ms": self.hold_ms,
            "disturbed": [disturbance.name for disturbance in self.disturbances],
            "proven": self.evidence,
            "seconds": self.seconds,
            "broke": self.failure,
        }


def run_chaos_rush(testbed: Testbed, rush: ChaosRush, strategies: Sequence[StrategyFacts]) -> None:
    """Run the rush for these strategies, judge each of its sales, and store the outcome in `rush`.

    In a rush all strategies sell at the same time, while its disturbances inject faults.
    A rush without evidence of a disturbance is inconclusive: its sales are `unknown`, unless they
    are oversold.
    """
    rng = Random(rush.seed)
    fault = ChaosFault(testbed)
    fault.unique_id = f"r{rush.number}_"  # without the _, r1 would be a prefix of r12
    testbed.read_new_events()  # skips the events of the rushes before this one
    for strategy in strategies:
        fault.add_trial(strategy)
    buyers = []
    for trial in fault.trials:
        retry_until_answered(trial.open)
        for number in range(BUYERS):
            buyers.append(trial.add_buyer(f"buyer-{number:02}", hold_ms=rush.hold_ms))
    rng.shuffle(buyers)
    started_at = time.monotonic()
    _send_buyers_and_disturb(testbed, rush, buyers, rng)
    testbed.record_fault("chaos", "ok", "heal", "healed")
    if not wait_for(
        lambda: all(buyer.is_done.is_set() for buyer in buyers), LAST_ANSWER_TIMEOUT_SECONDS
    ):
        for buyer in buyers:
            buyer.give_up()

    def has_no_orphaned_lock() -> bool:
        return not any(trial.find_lock_keys() for trial in fault.trials)

    # The lock of a holder that was killed expires after a ttl.
    longest_wait = TTL_SECONDS + EXPIRY_SLACK_SECONDS
    retry_until_answered(partial(wait_for, has_no_orphaned_lock, longest_wait))
    _judge_sales(fault, rush)
    rush.seconds = round(time.monotonic() - started_at, 2)


def _send_buyers_and_disturb(
    testbed: Testbed, rush: ChaosRush, buyers: Sequence[FaultBuyer], rng: Random
) -> None:
    """Start the buyers one after the other, and the rush's disturbances in threads.

    Returns when all buyers have started and all disturbances have ended.
    """
    shops = [testbed.shop(node) for node in (VICTIMS_NODE, RIVALS_NODE)]
    started_at = time.monotonic()
    with ThreadPoolExecutor(len(rush.disturbances)) as pool:
        for disturbance in rush.disturbances:
            pool.submit(run_disturbance, testbed, rush, disturbance, Random(rng.getrandbits(32)))
        for number, buyer in enumerate(buyers):
            starts_at = started_at + ARRIVAL_SECONDS * number / len(buyers)
            time.sleep(max(0.0, starts_at - time.monotonic()))
            # The buyer sends its requests to both nodes in turn, to a random one first.
            buyer.start(*rng.sample(shops, 2))


def _judge_sales(fault: ChaosFault, rush: ChaosRush) -> None:
    """Judge the sale of each trial (one strategy in this rush), and set `rush.cells`.

    A cell has the figures and the verdict of one sale.
    """
    if not rush.evidence:
        for trial in fault.trials:
            trial.mark_inconclusive(NO_DISTURBANCE_SEEN_MESSAGE)
    evidence = "; ".join(f"{name}: {text}" for name, text in rush.evidence.items())
    # In a rush of chaos, keys that are left on the lock servers are not searched for.
    rush.cells = judge_trials(fault, evidence, leaked_keys=())
    allowed_violations = set()
    if any(disturbance.takes_the_lock for disturbance in rush.disturbances):
        # A second buyer gets the lock that a disturbance took from its holder.
        allowed_violations.add("overlap")
    for trial, cell in zip(fault.trials, rush.cells, strict=True):
        judge_chaos_sale(cell, trial.judgement.holds, allowed_violations)
        cell["hold_ms"] = rush.hold_ms
        cell["round"] = rush.number


def judge_chaos_sale(cell: Cell, holds: Sequence[LockHold], allowed_violations: set[str]) -> None:
    """Set the cell's fields `wrong` and `as_expected`. A cell is the judged sale of one strategy.

    `wrong` gets all violations that are not in `allowed_violations`.

    If the only violations are overlaps after an expired lease, the sale is inconclusive: this
    machine was too slow to run the earlier holder within its ttl.

    holds               the times during which buyers held the lock
    allowed_violations  names of the rules that even a sound lock may violate, because a disturbance
                        took the lock from its holder
    """
    cell["wrong"] = sorted(set(cell["violations"]) - allowed_violations)
    has_only_overlaps = cell["verdict"] == "exact" and cell["wrong"] == ["overlap"]
    had_expired_leases = all(_has_expired(first, second) for first, second in find_overlaps(holds))
    if has_only_overlaps and had_expired_leases:
        cell["verdict"] = "unknown"
        cell["missing"] = LEASE_RAN_OUT_MESSAGE
        cell["wrong"] = []
    cell["as_expected"] = cell["verdict"] == "exact" and not cell["wrong"]


def _has_expired(first: LockHold, second: LockHold) -> bool:
    """Return whether the lease of the first hold had expired when the second hold began.

    This is so if their fences or their recorded starts are at least a ttl apart. A fence is derived
    from Redis's clock at the time of the grant, in microseconds. The recorded start of a hold is
    less exact: on a busy machine it is recorded late.
    """
    if first.fence is None or first.release_outcome != "expired":
        return False
    expired_by_fences = second.fence is not None and second.fence - first.fence >= TTL_SECONDS * 1e6
    expired_by_starts = second.start - first.start >= TTL_SECONDS * 1e9  # starts are in ns
    return expired_by_fences or expired_by_starts


def run_disturbance(
    testbed: Testbed, rush: ChaosRush, disturbance: Disturbance, rng: Random
) -> None:
    """Inject the fault of a disturbance at a random time.

    The evidence that it happened, or its error, is stored in `rush`. A disturbance that did not
    happen (NotFired) is no error, and is recorded in the history only. Disturbances that need the
    same servers wait for each other; all others overlap.
    """
    time.sleep(rng.uniform(0, DISTURBANCE_START_SECONDS))
    with disturbance.server_lock:
        testbed.record_fault("chaos", "invoke", "fire", disturbance.name)
        # A failed disturbance is recorded as `info`. If it were recorded as `fail`, the judge would
        # conclude that no disturbance of the rush happened.
        event_type = "info"
        try:
            outcome = disturbance.inject(testbed, rng)
            rush.evidence[disturbance.name] = outcome
            event_type = "ok"
        except Exception as error:
            outcome = describe_error(error)
            if not isinstance(error, NotFired):
                testbed.log.write(traceback.format_exc().encode())
                rush.disturbance_errors.append(outcome)
    testbed.record_fault("chaos", event_type, "prove", f"{disturbance.name}: {outcome}")
