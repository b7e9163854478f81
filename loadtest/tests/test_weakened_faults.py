"""Faults that only appear to happen, on real servers: no signal, no kill, nothing dropped.

WEAKENED=all plays every weakened fault for every strategy that the fault concerns; otherwise a
selection is played for two strategies.
"""

import os
from inspect import signature

import pytest

from loadtest.expected import TRAITS, VICTIM_POINTS
from loadtest.faults import FAULTS
from loadtest.faults.runner import run_fault
from loadtest.faults.testbed import Testbed
from loadtest.tests.weakened_faults import WEAKENED_FAULTS, WeakenedFault

ALL = os.environ.get("WEAKENED") == "all"
SOME = {
    ("pause@acquired", "master only, by the list"),
    ("pause", "for a moment"),
    ("shutdown", "nobody was left"),
    ("failover", "no switch"),
    ("lost-reply", "request dropped"),
    ("unknown-commit", "COMMIT dropped"),
    ("redis-down", "no kill"),
    ("stall", "no connection"),
    ("partition", "both nodes"),
    ("partition", "the cut-off buyer asks node B"),
    ("slow", "victims released"),
    ("late-release", "victims released"),
    ("slow-write", "delay lifted"),
}
LOCKS = ("token", "redis")
CHOSEN = [
    pytest.param(fault, weakened, id=f"{fault}-{weakened.how}")
    for weakened in WEAKENED_FAULTS
    for fault in weakened.faults.split()
    if ALL or (fault, weakened.how) in SOME
]
#: Strategies that a long ttl does not change: SETNX has none, and the others have no lock on Redis.
ENDLESS = {"setnx"} | {
    name for name, traits in TRAITS.items() if traits.backend == "postgresql" or traits.reserves
}


def test_replacements_take_the_arguments_of_the_originals() -> None:
    """A replacement that raised TypeError would not be the fault that its row describes."""
    for weakened in WEAKENED_FAULTS:
        original = getattr(weakened.owner, weakened.name)
        if callable(original):
            signature(weakened.instead).bind(*signature(original).parameters)


@pytest.mark.parametrize(("fault", "neuter"), CHOSEN)
def test_disabled_fault_is_inconclusive_and_the_next_runs(
    testbed: Testbed, fault: str, neuter: WeakenedFault
) -> None:
    strategies = testbed.strategies(() if ALL else LOCKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neuter.owner, neuter.name, neuter.instead)
        cells = run_fault(FAULTS[fault](testbed), strategies)
    if "ttl" in neuter.how:
        testbed.repair()
    noticing = [cell for cell in cells if not (neuter.only_ttl and cell["lock"] in ENDLESS)]
    assert noticing
    cells_passed = {
        cell["lock"]: cell["verdict"] for cell in noticing if not (cell["missing"] or cell["wrong"])
    }
    if fault == "crash":  # stopped before their EXPIRE: no ttl to be too long yet
        cells_passed = {
            lock: cells_passed[lock]
            for lock in cells_passed
            if VICTIM_POINTS.get(lock, {}).get("crash") is None
        }
    assert not cells_passed, (
        f"{len(cells_passed)} of {len(noticing)} did not notice: {cells_passed}"
    )
    # A flawed lock may oversell all the same.
    assert {cell["verdict"] for cell in noticing if cell["missing"]} <= {"unknown", "oversold"}
    assert not any(cell["as_expected"] for cell in noticing if cell["missing"] or cell["wrong"])
    print(f"{fault}, {neuter.how}: {len(noticing)} of {len(cells)}: {cells[0]['missing']}")


def test_testbed_is_restored_after_all_faults(testbed: Testbed) -> None:
    strategies = testbed.strategies(LOCKS)
    for name in ("redis-down", "db-kill", "db-failover", "late-release"):
        cells = run_fault(FAULTS[name](testbed), strategies)
        assert all(cell["as_expected"] for cell in cells), [cell["missing"] for cell in cells]
