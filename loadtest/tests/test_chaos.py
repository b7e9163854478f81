"""The conclusions of a chaos run, from its disturbances and its canaries."""

import io
import threading
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, cast
from unittest.mock import Mock

import pytest
from redis import RedisError

from loadtest.commands import chaos
from loadtest.commands.chaos import CANARIES
from loadtest.faults import cells as fault_cells
from loadtest.faults import chaos_rush
from loadtest.faults.cells import retry_until_answered
from loadtest.faults.chaos_rush import DISTURBANCES, LEASE_RAN_OUT_MESSAGE, ChaosRush, Disturbance
from loadtest.faults.testbed import TTL_SECONDS, Testbed, run_in_parallel
from loadtest.judge.intervals import LockHold
from loadtest.judge.run import Cell
from loadtest.judge.verdict import EXIT_CODES
from loadtest.stack.client import ShopUnreachable

UNKNOWN = EXIT_CODES["unknown"]


def cell(
    lock: str, verdict: str = "exact", *, missing: str = "", wrong: Sequence[str] = ()
) -> Cell:
    sold_too_many = 3 if verdict == "oversold" else 0
    facts = {"lock": lock, "verdict": verdict, "missing": missing, "wrong": [*wrong], "round": 1}
    facts |= {"oversold": sold_too_many, "lost_updates": sold_too_many}
    return cast(Cell, {**facts, "as_expected": verdict == "exact" and not wrong})


def rush(
    *disturbances_seen: str, unseen: Sequence[str] = (), cells: Sequence[Cell] = ()
) -> ChaosRush:
    chosen = [Disturbance(name, lambda *_: "") for name in (*disturbances_seen, *unseen)]
    return ChaosRush(1, 1, chosen, 60, dict.fromkeys(disturbances_seen, "seen"), cells=list(cells))


ALL_BREAK = [cell(lock, "oversold") for lock in CANARIES]


def test_run_with_faults_and_broken_canaries_passes() -> None:
    rushes = [rush("evict", cells=[cell("redis"), *ALL_BREAK])]
    assert (chaos.exit_code(rushes), chaos.find_shortcomings(rushes)) == (0, [])
    rushes.append(rush(cells=[{**lock_cell, "round": 2} for lock_cell in ALL_BREAK]))
    assert set(chaos.find_broken_canaries(rushes).values()) == {1}, (
        "the first rush in which each broke"
    )


@pytest.mark.parametrize("lock", CANARIES)
def test_run_without_a_broken_canary_is_inconclusive(lock: str) -> None:
    other_cells = [lock_cell for lock_cell in ALL_BREAK if lock_cell["lock"] != lock]
    rushes = [rush("evict", cells=[cell("redis"), *other_cells, cell(lock)])]
    assert chaos.exit_code(rushes) == UNKNOWN
    assert chaos.find_shortcomings(rushes) == [f"canary {lock} did not break"]


def test_run_with_too_few_observations_is_inconclusive() -> None:
    nothing = cell("redis", "unknown", missing="no disturbance was seen to happen")
    blind = [rush(unseen=["evict"], cells=[nothing, *ALL_BREAK])]
    assert chaos.exit_code(blind) == UNKNOWN
    assert chaos.find_shortcomings(blind) == ["no disturbance was seen to happen"]
    rushes = [rush("evict", unseen=["kill_node"], cells=[cell("redis"), *ALL_BREAK])] * 3
    assert chaos.exit_code(rushes[:2]) == 0  # by chance
    assert chaos.find_shortcomings(rushes) == ["kill_node was never seen to happen"]
    rushes[1].failure = "StackError: node A did not start"
    assert chaos.exit_code(rushes[:2]) == UNKNOWN


def test_one_failed_rush_in_a_hundred_is_tolerated() -> None:
    """In hours of rushes, a server may not come back in time for one of them."""
    rushes = [rush("evict", cells=[cell("redis"), *ALL_BREAK]) for _ in range(200)]
    for number in (10, 11):
        rushes[number].failure = "ShopUnreachable: GET /sales/1727: 503"
        rushes[number].cells = []
    assert (chaos.exit_code(rushes), chaos.find_shortcomings(rushes)) == (0, [])
    rushes[12].failure = "ShopUnreachable: GET /sales/1728: 503"
    assert chaos.exit_code(rushes) == UNKNOWN
    assert chaos.find_shortcomings(rushes) == ["3 of 200 rushes failed, more than one in a hundred"]


def test_only_whole_rushes_show_something() -> None:
    rushes = [rush("evict", cells=[cell("redis"), *ALL_BREAK]) for _ in range(200)]
    rushes[0] = rush("stall_redis")
    rushes[0].failure = "StackError: node A did not start"
    assert chaos.exit_code(rushes) == 0
    for later_rush in rushes[1:]:
        later_rush.evidence.clear()
    assert chaos_rush.NO_DISTURBANCE_SEEN_MESSAGE in chaos.find_shortcomings(rushes)


def test_judge_reads_again_until_the_servers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
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
    "broken",
    [
        cell("redis", "oversold"),
        cell("redis", "oversold", missing="no disturbance was seen to happen"),
        cell("row-lock", "deadlock"),
        cell("redis", wrong=["orphan_lock"]),
    ],
)
def test_violation_of_a_sound_strategy_is_always_a_failure(broken: Cell) -> None:
    rushes = [rush(cells=[broken])]
    assert chaos.find_shortcomings(rushes)
    assert chaos.exit_code(rushes) == 1
    assert chaos.find_violations(rushes) == [broken]


@pytest.mark.parametrize(
    ("changed", "after", "violations", "is_excused"),
    [
        ({}, TTL_SECONDS, ["overlap"], True),
        ({}, TTL_SECONDS - 0.1, ["overlap"], False),
        ({"fence": 1 - round(TTL_SECONDS * 1e6)}, TTL_SECONDS - 0.1, ["overlap"], True),
        ({"fence": 2 - round(TTL_SECONDS * 1e6)}, TTL_SECONDS - 0.1, ["overlap"], False),
        ({"fence": None}, TTL_SECONDS, ["overlap"], False),
        ({"release_outcome": "released"}, TTL_SECONDS, ["overlap"], False),
        ({}, TTL_SECONDS, ["overlap", "orphan_lock"], False),
    ],
)
def test_two_holders_are_excused_only_after_the_first_lease_expired(
    changed: dict[str, Any], after: float, violations: list[str], is_excused: bool
) -> None:
    def hold(attempt: str, start: float, **facts: Any) -> LockHold:
        times = {"asked_at": 0, "start": round(start * 1e9), "end": round((TTL_SECONDS + 1) * 1e9)}
        hold_facts = {"fence": 1, "release_outcome": "expired", **times, **facts}
        return LockHold(("A", 1, 1, attempt), attempt, **hold_facts)

    redis_cell: Cell = {**cell("redis"), "violations": violations}
    holds = [hold("first", 0, **changed), hold("second", after, release_outcome="released")]
    chaos_rush.judge_chaos_sale(redis_cell, holds, set())
    assert (redis_cell["verdict"] == "unknown") is is_excused
    rushes = [rush("evict", cells=[redis_cell, *ALL_BREAK])]
    assert (chaos.exit_code(rushes), chaos.find_shortcomings(rushes)) == (
        (UNKNOWN, [f"redis: {LEASE_RAN_OUT_MESSAGE}"]) if is_excused else (1, [])
    )


def test_every_disturbance_comes_before_they_come_again() -> None:
    for seed in range(5):
        shuffled = chaos._shuffle_disturbances(Random(seed))
        for _ in range(2):
            dealt = [next(shuffled).name for _ in DISTURBANCES]
            assert Counter(dealt) == Counter(disturbance.name for disturbance in DISTURBANCES)


# --- disturbances at once -------------------------------------------------------------------------


class Nothing:
    """A testbed for a test that uses none."""

    log = io.BytesIO()

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []

    def record_fault(self, fault: str, kind: str, phase: str, what: str) -> None:
        self.recorded.append((phase, kind))


@pytest.fixture(autouse=True)
def _every_disturbance_starts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos_rush, "DISTURBANCE_START_SECONDS", 0.0)


def disturb(rush: ChaosRush, testbed: Nothing) -> None:
    run_in_parallel(
        rush.disturbances,
        lambda disturbance: chaos_rush.make_disturbance(
            cast(Testbed, testbed), rush, disturbance, Random(1)
        ),
    )


def test_disturbances_of_different_servers_overlap() -> None:
    together = threading.Barrier(3)

    def meets(testbed: Testbed, chance: Random) -> str:
        together.wait(10)  # none passes before all three are there
        return "met"

    chosen = [Disturbance(f"{n}", meets, threading.Lock()) for n in range(3)]
    only_rush = ChaosRush(1, 1, chosen, 0)
    disturb(only_rush, Nothing())
    assert list(only_rush.evidence.values()) == ["met"] * 3


def test_disturbances_of_the_same_servers_wait_for_each_other() -> None:
    inside: list[int] = []

    def alone(testbed: Testbed, chance: Random) -> str:
        inside.append(1)
        time.sleep(0.02)
        assert len(inside) == 1
        inside.pop()
        return "alone"

    server_lock = threading.Lock()
    chosen = [Disturbance(f"{n}", alone, server_lock) for n in range(3)]
    only_rush = ChaosRush(1, 1, chosen, 0)
    disturb(only_rush, Nothing())
    assert list(only_rush.evidence.values()) == ["alone"] * 3


def test_failed_disturbance_is_unseen_and_has_a_reason() -> None:
    def fails(testbed: Testbed, chance: Random) -> str:
        raise ZeroDivisionError("an error of ours")

    testbed, only_rush = Nothing(), ChaosRush(1, 1, [Disturbance("fails", fails)], 0)
    disturb(only_rush, testbed)
    assert (only_rush.evidence, only_rush.disturbance_errors) == (
        {},
        ["ZeroDivisionError: an error of ours"],
    )
    assert testbed.recorded == [("fire", "invoke"), ("prove", "info")]  # `fail` would void them all
