"""The conclusions of the command `chaos` from its rushes, and the disturbances of a rush.

In a rush many buyers buy at once, under each strategy in its own sale. A disturbance is a fault at
a random time in a rush. A canary is a flawed strategy, which must break in some rush: this shows
that the disturbances are strong enough. A cell is the judged sale of one strategy in a rush.
"""

import io
import threading
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from redis import RedisError

from loadtest.commands import chaos
from loadtest.commands.chaos import CANARIES
from loadtest.faults import cells as fault_cells
from loadtest.faults import chaos_rush, measure
from loadtest.faults.cells import retry_until_answered
from loadtest.faults.chaos_rush import (
    DISTURBANCES,
    LEASE_RAN_OUT_MESSAGE,
    NO_DISTURBANCE_SEEN_MESSAGE,
    ChaosRush,
    Disturbance,
)
from loadtest.faults.kinds.partition import PartitionFault
from loadtest.faults.testbed import RIVALS_NODE, TTL_SECONDS, Testbed, run_in_parallel
from loadtest.judge.intervals import AttemptThread, LockHold
from loadtest.judge.run import Cell
from loadtest.judge.verdict import EXIT_CODES
from loadtest.stack.client import ShopUnreachable

UNKNOWN_EXIT_CODE = EXIT_CODES["unknown"]


def make_cell(
    lock: str, verdict: str = "exact", *, missing: str = "", wrong: Sequence[str] = ()
) -> Cell:
    """Return a cell, the judged sale of one strategy in a rush.

    missing  the reason why the sale is inconclusive; empty if it is conclusive
    wrong    the rules that the sale violated
    """
    surplus_orders = 3 if verdict == "oversold" else 0
    cell_fields = {
        "lock": lock,
        "verdict": verdict,
        "missing": missing,
        "wrong": [*wrong],
        "round": 1,
        "oversold": surplus_orders,
        "lost_updates": surplus_orders,
        "as_expected": verdict == "exact" and not wrong,
    }
    return cast(Cell, cell_fields)


def make_rush(*seen: str, unseen: Sequence[str] = (), cells: Sequence[Cell] = ()) -> ChaosRush:
    """Return a rush with these cells, the judged sales of strategies.

    seen    the names of disturbances, faults in the rush, that have evidence
    unseen  the names of disturbances that have no evidence, and so may not have happened
    """
    return ChaosRush(
        number=1,
        seed=1,
        disturbances=[Disturbance(name, lambda *_: "") for name in (*seen, *unseen)],
        hold_ms=60,
        evidence=dict.fromkeys(seen, "seen"),
        cells=list(cells),
    )


#: A cell for each canary, in which the canary has broken.
CELLS_OF_BROKEN_CANARIES = [make_cell(lock, "oversold") for lock in CANARIES]


def test_run_with_faults_and_broken_canaries_passes() -> None:
    """The canaries, flawed strategies that must break, break in the first rush and in the second.

    Each is reported with the number of the first rush in which it broke.
    """
    rushes = [make_rush("evict", cells=[make_cell("redis"), *CELLS_OF_BROKEN_CANARIES])]
    assert (chaos.choose_exit_code(rushes), chaos.list_inconclusive_reasons(rushes)) == (0, [])
    rushes.append(make_rush(cells=[{**canary, "round": 2} for canary in CELLS_OF_BROKEN_CANARIES]))
    first_rush_by_canary = chaos.find_broken_canaries(rushes)
    assert first_rush_by_canary == dict.fromkeys(CANARIES, 1)


@pytest.mark.parametrize("lock", CANARIES)
def test_run_in_which_a_canary_did_not_break_is_inconclusive(lock: str) -> None:
    """A canary is a flawed strategy that must break. The canary `lock` is exact here."""
    other_canaries = [canary for canary in CELLS_OF_BROKEN_CANARIES if canary["lock"] != lock]
    rushes = [make_rush("evict", cells=[make_cell("redis"), *other_canaries, make_cell(lock)])]
    assert chaos.choose_exit_code(rushes) == UNKNOWN_EXIT_CODE
    assert chaos.list_inconclusive_reasons(rushes) == [f"canary {lock} did not break"]


def test_run_without_evidence_of_a_disturbance_is_inconclusive() -> None:
    """The run has one rush. Its only disturbance, a fault in the rush, may not have happened."""
    sale = make_cell("redis", "unknown", missing=NO_DISTURBANCE_SEEN_MESSAGE)
    rushes = [make_rush(unseen=["evict"], cells=[sale, *CELLS_OF_BROKEN_CANARIES])]
    assert chaos.choose_exit_code(rushes) == UNKNOWN_EXIT_CODE
    assert chaos.list_inconclusive_reasons(rushes) == [NO_DISTURBANCE_SEEN_MESSAGE]


def test_run_is_inconclusive_if_three_rushes_lack_evidence() -> None:
    """A disturbance, a fault in a rush, may not have happened if there is no evidence of it.

    In two rushes the evidence may be missing by chance. If it is missing in three rushes, the run
    is inconclusive.
    """
    sales = [make_cell("redis"), *CELLS_OF_BROKEN_CANARIES]
    rushes = [make_rush("evict", unseen=["kill_node"], cells=sales) for _ in range(3)]
    assert chaos.choose_exit_code(rushes[:2]) == 0
    assert chaos.choose_exit_code(rushes) == UNKNOWN_EXIT_CODE
    assert chaos.list_inconclusive_reasons(rushes) == ["kill_node was never seen to happen"]


def test_run_in_which_one_of_two_rushes_failed_is_inconclusive() -> None:
    """A rush fails if an error ends it before its sales are judged."""
    rushes = [
        make_rush("evict", cells=[make_cell("redis"), *CELLS_OF_BROKEN_CANARIES]) for _ in range(2)
    ]
    rushes[1].failure = "StackError: node A did not start"
    assert chaos.choose_exit_code(rushes) == UNKNOWN_EXIT_CODE


def test_one_failed_rush_in_a_hundred_is_tolerated() -> None:
    """If 2 of 200 rushes fail, the run still passes. If 3 fail, it is inconclusive.

    A server may occasionally fail to restart in time, and then a rush fails.
    """
    rushes = [
        make_rush("evict", cells=[make_cell("redis"), *CELLS_OF_BROKEN_CANARIES])
        for _ in range(200)
    ]
    first_rush, second_rush, third_rush = rushes[:3]
    for rush in (first_rush, second_rush):
        rush.failure = "ShopUnreachable: GET /sales/1727: 503"
        rush.cells = []
    assert (chaos.choose_exit_code(rushes), chaos.list_inconclusive_reasons(rushes)) == (0, [])
    third_rush.failure = "ShopUnreachable: GET /sales/1728: 503"
    assert chaos.choose_exit_code(rushes) == UNKNOWN_EXIT_CODE
    assert chaos.list_inconclusive_reasons(rushes) == [
        "3 of 200 rushes failed, more than one in a hundred"
    ]


def test_disturbance_of_a_failed_rush_does_not_count_as_seen() -> None:
    """The first of 200 rushes has evidence that a disturbance happened, but the rush failed.

    If no other rush has such evidence, the run is inconclusive.
    """
    rushes = [
        make_rush("evict", cells=[make_cell("redis"), *CELLS_OF_BROKEN_CANARIES])
        for _ in range(200)
    ]
    rushes[0] = make_rush("stall_redis")
    rushes[0].failure = "StackError: node A did not start"
    assert chaos.choose_exit_code(rushes) == 0
    for later_rush in rushes[1:]:
        later_rush.evidence.clear()
    assert NO_DISTURBANCE_SEEN_MESSAGE in chaos.list_inconclusive_reasons(rushes)


def test_read_of_a_server_is_retried_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first read fails because of the shop, and the second one because of Redis.

    If a read still fails after RETRY_TIMEOUT_SECONDS, its error is raised.
    """
    answers = [ShopUnreachable("GET /sales/1: 503"), RedisError("refused"), {"stock_left": 0}]

    def read() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert retry_until_answered(read) == {"stock_left": 0}
    monkeypatch.setattr(fault_cells, "RETRY_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(ShopUnreachable, match="503"):
        retry_until_answered(Mock(side_effect=ShopUnreachable("GET /sales/1: 503")))


@pytest.mark.parametrize(
    "violating_cell",
    [
        make_cell("redis", "oversold"),
        make_cell("redis", "oversold", missing=NO_DISTURBANCE_SEEN_MESSAGE),
        make_cell("row-lock", "deadlock"),
        make_cell("redis", wrong=["orphan_lock"]),
    ],
)
def test_violation_of_a_sound_strategy_is_always_a_failure(violating_cell: Cell) -> None:
    """The exit code is 1, although there are reasons to call the run inconclusive.

    The run has no evidence of a disturbance, and none of the canaries, the flawed strategies that
    must break, has broken.
    """
    rushes = [make_rush(cells=[violating_cell])]
    assert chaos.list_inconclusive_reasons(rushes)
    assert chaos.choose_exit_code(rushes) == 1
    assert chaos.find_failures_of_sound_strategies(rushes) == [violating_cell]


#: The fences of two holds that begin a ttl apart differ by this. A fence is approximately the
#: time of its grant, in microseconds.
TTL_IN_FENCES = round(TTL_SECONDS * 1e6)
#: The fence of each hold, except for holds to which a test gives another fence.
DEFAULT_FENCE = 1


def make_hold(attempt: str, start: float, **fields: Any) -> LockHold:
    """Return a hold of the lock whose lease expired before the release.

    start   the time at which the hold began, in seconds
    fields  further fields of the hold, or ones that replace the usual fields
    """
    attempt_thread = AttemptThread(node="A", pid=1, thread=1, attempt=attempt)
    times = {"requested_at": 0, "start": round(start * 1e9), "end": round((TTL_SECONDS + 1) * 1e9)}
    hold_fields = {"fence": DEFAULT_FENCE, "release_outcome": "expired", **times, **fields}
    return LockHold(attempt_thread, token=attempt, **hold_fields)


@pytest.mark.parametrize(
    ("first_fields", "second_start", "violations", "is_excused"),
    [
        # The fences are equal, so the starts have to be a ttl apart.
        ({}, TTL_SECONDS, ["overlap"], True),
        ({}, TTL_SECONDS - 0.1, ["overlap"], False),
        # The starts are too close, so the fences have to be a ttl apart.
        ({"fence": DEFAULT_FENCE - TTL_IN_FENCES}, TTL_SECONDS - 0.1, ["overlap"], True),
        ({"fence": DEFAULT_FENCE - TTL_IN_FENCES + 1}, TTL_SECONDS - 0.1, ["overlap"], False),
        # Not excused: a lock without a fence, a lease that was released, and a second violation.
        ({"fence": None}, TTL_SECONDS, ["overlap"], False),
        ({"release_outcome": "released"}, TTL_SECONDS, ["overlap"], False),
        ({}, TTL_SECONDS, ["overlap", "orphan_lock"], False),
    ],
)
def test_two_holders_are_excused_only_if_the_first_lease_expired(
    first_fields: dict[str, Any], second_start: float, violations: list[str], is_excused: bool
) -> None:
    """Two buyers hold the lock of `redis` at the same time. This violates the rule `overlap`.

    If the lease of the first holder had expired, the machine was too slow, and the verdict on the
    sale is `unknown`. It had expired if a ttl passed between the beginnings of the two holds. Their
    start times or their fences show this: a fence is approximately the time of its grant.

    first_fields  fields of the first hold, which began at 0
    second_start  the start time of the second hold, in seconds
    is_excused    whether the verdict becomes `unknown`
    """
    redis_cell: Cell = {**make_cell("redis"), "violations": violations}
    holds = [
        make_hold("first", 0, **first_fields),
        make_hold("second", second_start, release_outcome="released"),
    ]
    chaos_rush.judge_chaos_sale(redis_cell, holds, set())
    assert (redis_cell["verdict"] == "unknown") is is_excused
    rushes = [make_rush("evict", cells=[redis_cell, *CELLS_OF_BROKEN_CANARIES])]
    if is_excused:
        assert chaos.choose_exit_code(rushes) == UNKNOWN_EXIT_CODE
        assert chaos.list_inconclusive_reasons(rushes) == [f"redis: {LEASE_RAN_OUT_MESSAGE}"]
    else:
        assert chaos.choose_exit_code(rushes) == 1
        assert chaos.list_inconclusive_reasons(rushes) == []


def test_every_disturbance_is_drawn_before_any_is_drawn_again() -> None:
    """If DISTURBANCES, the faults for rushes, has n entries, the first n draws return each once.

    The next n draws return each entry once more. Some entries have the same name.
    """
    count_by_name = Counter(disturbance.name for disturbance in DISTURBANCES)
    for seed in range(5):
        shuffled_disturbances = chaos._shuffle_disturbances(Random(seed))
        for _ in range(2):
            drawn_names = [next(shuffled_disturbances).name for _ in DISTURBANCES]
            assert Counter(drawn_names) == count_by_name


def test_evidence_names_the_node_of_the_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node B is cut off from Redis: Redis does not answer through the proxy of node B."""
    nodes = [SimpleNamespace(name=name) for name in "AB"]
    proxies = [SimpleNamespace(run_id="a1", dropped_bytes=0) for _ in nodes]
    proxies[RIVALS_NODE].run_id = ""  # no answer of Redis
    monkeypatch.setattr(measure, "read_redis_run_id", lambda proxy: proxy.run_id)
    fault = PartitionFault(cast(Testbed, SimpleNamespace(nodes=nodes, redis_proxies=proxies)))
    fault.node = RIVALS_NODE
    assert fault.prove() == "Redis answers through node A's proxy, and not through node B's"


# --- disturbances at the same time ----------------------------------------------------------------


class RecordingTestbed:
    """A testbed without servers.

    fault_events  the phase and the type of each event that a fault records
    """

    log = io.BytesIO()

    def __init__(self) -> None:
        self.fault_events: list[tuple[str, str]] = []

    def record_fault(self, fault: str, event_type: str, phase: str, sentence: str) -> None:
        self.fault_events.append((phase, event_type))


@pytest.fixture(autouse=True)
def _disturbances_start_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos_rush, "DISTURBANCE_START_SECONDS", 0.0)


def run_disturbances(rush: ChaosRush, testbed: RecordingTestbed) -> None:
    """Run all disturbances of a rush in parallel."""
    run_in_parallel(
        rush.disturbances,
        lambda disturbance: chaos_rush.run_disturbance(
            cast(Testbed, testbed), rush, disturbance, Random(1)
        ),
    )


def test_disturbances_of_different_servers_overlap() -> None:
    """Three disturbances (faults in a rush) have different locks as their `server_lock`.

    Each disturbance waits until all of them have begun.
    """
    all_have_begun = threading.Barrier(3)

    def wait_for_others(testbed: Testbed, rng: Random) -> str:
        all_have_begun.wait(10)
        return "all have begun"

    disturbances = [
        Disturbance(f"{number}", inject=wait_for_others, server_lock=threading.Lock())
        for number in range(3)
    ]
    only_rush = ChaosRush(number=1, seed=1, disturbances=disturbances, hold_ms=0)
    run_disturbances(only_rush, RecordingTestbed())
    assert list(only_rush.evidence.values()) == ["all have begun"] * 3


def test_disturbances_of_the_same_servers_run_one_by_one() -> None:
    """Three disturbances (faults in a rush) have the same `server_lock`.

    Each disturbance checks that no other one runs at the same time.
    """
    running_count = 0

    def check_is_alone(testbed: Testbed, rng: Random) -> str:
        nonlocal running_count
        running_count += 1
        time.sleep(0.02)  # long enough for another disturbance to begin
        assert running_count == 1, "no other disturbance should run"
        running_count -= 1
        return "alone"

    server_lock = threading.Lock()
    disturbances = [
        Disturbance(f"{number}", inject=check_is_alone, server_lock=server_lock)
        for number in range(3)
    ]
    only_rush = ChaosRush(number=1, seed=1, disturbances=disturbances, hold_ms=0)
    run_disturbances(only_rush, RecordingTestbed())
    assert list(only_rush.evidence.values()) == ["alone"] * 3


def test_failed_disturbance_leaves_an_error_and_no_evidence() -> None:
    """The function that makes a disturbance (a fault in a rush) raises an error.

    The event of the error has the type `info`. With the type `fail`, the judge would give no
    verdict on any sale of the rush.
    """

    def fail(testbed: Testbed, rng: Random) -> str:
        raise ZeroDivisionError("a bug")

    testbed = RecordingTestbed()
    disturbances = [Disturbance("fails", inject=fail)]
    only_rush = ChaosRush(number=1, seed=1, disturbances=disturbances, hold_ms=0)
    run_disturbances(only_rush, testbed)
    assert only_rush.evidence == {}
    assert only_rush.disturbance_errors == ["ZeroDivisionError: a bug"]
    assert testbed.fault_events == [("fire", "invoke"), ("prove", "info")]
