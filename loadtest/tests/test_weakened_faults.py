"""Faults that only appear to happen, on real servers: no signal, no kill, nothing dropped.

With WEAKENED=all every weakened fault is made for every strategy that the fault concerns; otherwise
a selection is made for two strategies.
"""

import os
from inspect import signature

import pytest

from loadtest.expected import TRAITS, VICTIM_POINTS
from loadtest.faults import FAULTS
from loadtest.faults.runner import run_fault
from loadtest.faults.testbed import Testbed
from loadtest.tests.weakened_faults import WEAKENED_FAULTS, WeakenedFault

MAKES_ALL = os.environ.get("WEAKENED") == "all"
#: The selection: names of faults, and how each is weakened.
SELECTION = {
    ("pause@acquired", "master only, by the list"),
    ("pause", "interrupted"),
    ("shutdown", "no buyer was left"),
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
#: The strategies of the selection: a lock that a fault can break, and a lock with a fence.
SELECTED_STRATEGIES = ("token", "redis")
SELECTED_FAULTS = [
    pytest.param(fault, weakened, id=f"{fault}-{weakened.how}")
    for weakened in WEAKENED_FAULTS
    for fault in weakened.faults.split()
    if MAKES_ALL or (fault, weakened.how) in SELECTION
]
#: Strategies that a long ttl does not change: SETNX has none, and the others have no lock on Redis.
STRATEGIES_WITHOUT_TTL = {"setnx"} | {
    name for name, traits in TRAITS.items() if traits.backend == "postgresql" or traits.reserves
}
#: Strategies whose victims crash between SETNX and EXPIRE, so that their locks have no ttl yet.
CRASHED_BEFORE_EXPIRE = {
    name for name, points in VICTIM_POINTS.items() if points.get("crash") == "setnx:before_expire"
}


def test_replacements_take_the_arguments_of_the_originals() -> None:
    """A weakened fault replaces a function of the fault's code.

    If the replacement took other arguments, the fault would fail with a TypeError.
    """
    for weakened in WEAKENED_FAULTS:
        original = getattr(weakened.owner, weakened.attribute)
        if callable(original):
            signature(weakened.replacement).bind(*signature(original).parameters)


@pytest.mark.parametrize(("fault", "weakened"), SELECTED_FAULTS)
def test_weakened_fault_is_inconclusive(
    testbed: Testbed, fault: str, weakened: WeakenedFault
) -> None:
    """A weakened fault only appears to happen, for example because no signal is sent.

    The judge must notice it for each strategy: the cell, its result, says what is missing or wrong,
    and is not as expected. A long ttl weakens a fault only for strategies that have a ttl.
    """
    strategies = testbed.strategies(() if MAKES_ALL else SELECTED_STRATEGIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weakened.owner, weakened.attribute, weakened.replacement)
        cells = run_fault(FAULTS[fault](testbed), strategies)
    if weakened.attribute == "set_ttl":
        testbed.repair()  # the nodes still have the long ttl
    unaffected_strategies: set[str] = set()
    if weakened.only_with_ttl:
        unaffected_strategies |= STRATEGIES_WITHOUT_TTL
        if fault == "crash":
            unaffected_strategies |= CRASHED_BEFORE_EXPIRE
    weakened_cells = [cell for cell in cells if cell["lock"] not in unaffected_strategies]
    assert weakened_cells
    unnoticed_verdicts = {
        cell["lock"]: cell["verdict"]
        for cell in weakened_cells
        if not (cell["missing"] or cell["wrong"])
    }
    assert not unnoticed_verdicts, (
        f"{len(unnoticed_verdicts)} of {len(weakened_cells)} cells did not notice that the fault "
        f"was weakened: {unnoticed_verdicts}"
    )
    # A flawed lock may oversell even without the fault.
    verdicts = {cell["verdict"] for cell in weakened_cells if cell["missing"]}
    assert verdicts <= {"unknown", "oversold"}
    noticed_cells = [cell for cell in weakened_cells if cell["missing"] or cell["wrong"]]
    assert not any(cell["as_expected"] for cell in noticed_cells)
    summary = f"{len(weakened_cells)} of {len(cells)} cells: {cells[0]['missing']}"
    print(f"{fault}, {weakened.how}: {summary}")


@pytest.mark.parametrize("fault", ["redis-down", "db-kill", "db-failover", "late-release"])
def test_whole_faults_still_work_on_the_testbed_afterwards(testbed: Testbed, fault: str) -> None:
    """The testbed was used for weakened faults, and now for the same faults as they should be."""
    cells = run_fault(FAULTS[fault](testbed), testbed.strategies(SELECTED_STRATEGIES))
    assert all(cell["as_expected"] for cell in cells), [cell["missing"] for cell in cells]
