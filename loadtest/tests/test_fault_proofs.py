"""Partitions, split brains and refusals that did not happen are noticed by their proofs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from loadtest.faults import FAULTS, measure, misconf
from loadtest.faults.misconf import Misconf
from loadtest.faults.partition import Partition
from loadtest.faults.split_brain import SplitBrain
from loadtest.faults.testbed import VICTIMS
from loadtest.faults.trial import Trial
from loadtest.tests.fake_testbed import Facts, FakeTestbed, strategy
from loadtest.tests.fake_trial import Way, buyer, refused, trial

# --- partition ----------------------------------------------------------------------------------


@pytest.fixture
def cut() -> Any:
    return SimpleNamespace(redis=[Way(), Way()], answers=lambda way: way.passes)


def test_a_partition_without_a_black_hole_did_not_happen(cut: Any) -> None:
    with refused("Redis answers through node A's proxy"):
        Partition().prove(cut, [])


def test_a_partition_that_cuts_both_nodes_off_is_another_fault(cut: Any) -> None:
    for way in cut.redis:
        way.black_hole()
    with refused("Redis does not answer node B either"):
        Partition().prove(cut, [])


def test_a_black_hole_into_which_nothing_fell_shows_nothing(cut: Any) -> None:
    for dropped, misses in ((0, ["node A sent nothing into the black hole"]), (80, [])):
        one, fault = trial(), Partition()
        fault.fire(cut, [one])
        cut.redis[VICTIMS].dropped = 14  # the proof's own
        fault.prove(cut, [one])
        cut.redis[VICTIMS].dropped += dropped
        fault.heal(cut, [one])
        assert one.misses == misses


@pytest.mark.parametrize(("outcome", "wrong"), [("unavailable", 0), ("sold", 1), ("busy", 1)])
def test_a_buyer_of_the_cut_off_node_has_to_be_refused(outcome: str, wrong: int) -> None:
    one = trial(buyer=lambda name: buyer(outcome), send=lambda buyer, node: buyer)
    one.rival_enters = lambda name, grace: True
    one.without_reply = {"unavailable"}
    Partition().meet(one)
    assert len(one.wrong) == wrong


@pytest.mark.parametrize(
    ("lock", "outcomes"), [("redis", {"unavailable"}), ("reserve", {"unavailable", "unknown"})]
)
def test_who_may_have_been_promised_a_unit_may_be_answered_unknown(
    lock: str, outcomes: set[str]
) -> None:
    one = Trial(cast(Any, FakeTestbed(Facts())), FAULTS["partition"](), strategy(lock), "run")
    assert one.without_reply == outcomes


# --- split-brain --------------------------------------------------------------------------------


@pytest.fixture
def two_masters(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two servers, and node B at the second one."""
    bed = SimpleNamespace(
        main={"run_id": "new", "role": "master"},
        redis=["old", "new"],
        ask=lambda server, *command: server,
    )
    monkeypatch.setattr(measure, "run_id", lambda way: way)
    return bed


def brain(**old: str) -> SplitBrain:
    fault = SplitBrain()
    fault.old, fault.held = {"run_id": "old", "role": "master", **old}, ["redis"]  # type: ignore[assignment]
    return fault


def test_a_split_brain_has_two_masters_and_a_node_at_each(two_masters: Any) -> None:
    free, held = trial(orphans=list), trial(orphans=lambda: ["lock:redis"])
    assert "a Redis each" in brain().prove(two_masters, [free])
    with refused("locks reached the replica"):
        brain().prove(two_masters, [held])
    with refused("a node has a slave"):
        brain(role="slave").prove(two_masters, [free])
    two_masters.redis = ["old", "old"]
    with refused("does not have the Redis of its own"):
        brain().prove(two_masters, [free])
    two_masters.redis, two_masters.main["role"] = ["old", "new"], "slave"
    with refused("a node has a slave"):
        brain().prove(two_masters, [free])


# --- misconf ------------------------------------------------------------------------------------


def test_a_redis_that_refused_nothing_was_configured_well(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def ask(server: object, *command: object) -> dict[str, object]:
        asked.append(command)
        return {}

    bed = SimpleNamespace(main=None, ask=ask)
    with refused("no command was answered OOM"):
        Misconf().arm(bed, [])  # type: ignore[arg-type]
    assert asked[-2:] == [("CONFIG", "SET", "maxmemory", "0"), ("INFO", "errorstats")]
    monkeypatch.setattr(misconf, "_refuses", lambda testbed: False)
    fault = Misconf()
    monkeypatch.setattr(fault, "require_soon", lambda is_so, why: fault.require(is_so(), why))
    with refused("no write is answered MISCONF"):
        fault.prove(bed, [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "outcome", "fenced", "wrong"),
    [
        ("READONLY", "unavailable", True, 0),
        ("READONLY", "sold", True, 1),
        ("OOM", "sold", True, 0),  # under the lock: see Misconf
        ("OOM", "sold", False, 1),
        ("MISCONF", "busy", False, 1),
    ],
)
def test_nothing_is_sold_unlocked_by_a_redis_that_refuses(
    error: str, outcome: str, fenced: bool, wrong: int
) -> None:
    one = trial(ask_once=lambda name: outcome, strategy={"fenced": fenced})
    Misconf()._is_refused(one, error)
    assert len(one.wrong) == wrong
