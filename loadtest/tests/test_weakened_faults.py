"""Weakened faults: faults that are made on real servers, but have no effect.

For example, the fault does everything except sending its signal. The load test must notice each
weakened fault. If the environment variable WEAKENED is "all", every weakened fault is made under
every strategy that the fault concerns. Otherwise a selection of them is made under two strategies.
"""

import os
from inspect import signature

import pytest

from loadtest.expected import TRAITS, VICTIM_POINTS
from loadtest.faults import FAULTS
from loadtest.faults.runner import run_fault
from loadtest.faults.testbed import Testbed
from loadtest.tests.weakened_faults import WEAKENED_FAULTS, WeakenedFault

#: Whether every weakened fault is made, and not only the selection.
RUNS_ALL = os.environ.get("WEAKENED") == "all"
#: The selection: the name of a fault, and the description of its weakened form.
SELECTION = {
    ("pause@acquired", "workers missing in the pid list"),
    ("pause", "interrupted pause"),
    ("shutdown", "SIGTERM after the answers"),
    ("failover", "nodes stay at the old master"),
    ("lost-reply", "request dropped"),
    ("unknown-commit", "COMMIT dropped"),
    ("redis-down", "no kill"),
    ("stall", "node A disconnected before"),
    ("partition", "both nodes cut off"),
    ("partition", "cut-off buyer sent to node B"),
    ("slow", "victims resumed too early"),
    ("late-release", "victims resumed too early"),
    ("slow-write", "delay removed too early"),
}
#: The strategies of the selection: a lock that a fault can break, and a lock with a fence.
SELECTED_STRATEGIES = ("token", "redis")
SELECTED_FAULTS = [
    pytest.param(fault, weakened, id=f"{fault}-{weakened.description}")
    for weakened in WEAKENED_FAULTS
    for fault in weakened.faults.split()
    if RUNS_ALL or (fault, weakened.description) in SELECTION
]
#: Strategies whose locks have no ttl: `setnx`, and those without a lock in Redis. Under them a long
#: ttl weakens no fault.
STRATEGIES_WITHOUT_TTL = {"setnx"} | {
    name for name, traits in TRAITS.items() if traits.backend == "postgresql" or traits.reserves
}
#: Strategies under which the fault `crash` kills the victim between SETNX and EXPIRE. The lock has
#: no ttl yet, so a long ttl does not weaken this fault.
CRASHED_BEFORE_EXPIRE = {
    name for name, points in VICTIM_POINTS.items() if points.get("crash") == "setnx:before_expire"
}


def test_replacements_take_the_arguments_of_the_originals() -> None:
    """A weakened fault is a fault in which one function is replaced by a weaker one.

    If the weaker function took other arguments, test_weakened_fault_is_inconclusive() would fail
    with a TypeError.
    """
    for weakened in WEAKENED_FAULTS:
        original = getattr(weakened.owner, weakened.attribute)
        if callable(original):
            signature(weakened.replacement).bind(*signature(original).parameters)


@pytest.mark.parametrize(("fault", "weakened"), SELECTED_FAULTS)
def test_weakened_fault_is_inconclusive(
    testbed: Testbed, fault: str, weakened: WeakenedFault
) -> None:
    """The load test must notice under each strategy that the fault did not really happen.

    A cell is the result of one strategy under one fault. Its field `missing` has what was not
    observed, and `wrong` has complaints. A cell with one of them is not as expected.
    """
    strategies = testbed.strategies(() if RUNS_ALL else SELECTED_STRATEGIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weakened.owner, weakened.attribute, weakened.replacement)
        cells = run_fault(FAULTS[fault](testbed), strategies)
    if weakened.attribute == "set_ttl":
        testbed.repair()  # the nodes still have the long ttl
    unaffected_strategies: set[str] = set()
    if weakened.needs_ttl:
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
        f"in {len(unnoticed_verdicts)} of {len(weakened_cells)} cells the load test did not notice "
        f"that the fault was weakened: {unnoticed_verdicts}"
    )
    # A flawed lock may oversell even if the fault does not happen.
    verdicts = {cell["verdict"] for cell in weakened_cells if cell["missing"]}
    assert verdicts <= {"unknown", "oversold"}
    noticed_cells = [cell for cell in weakened_cells if cell["missing"] or cell["wrong"]]
    assert not any(cell["as_expected"] for cell in noticed_cells)
    summary = f"{len(weakened_cells)} of {len(cells)} cells: {cells[0]['missing']}"
    print(f"{fault}, {weakened.description}: {summary}")


@pytest.mark.parametrize("fault", ["redis-down", "db-kill", "db-failover", "late-release"])
def test_real_faults_still_work_on_the_testbed_afterwards(testbed: Testbed, fault: str) -> None:
    """The tests above made faults without an effect on the same servers, and repaired them."""
    cells = run_fault(FAULTS[fault](testbed), testbed.strategies(SELECTED_STRATEGIES))
    assert all(cell["as_expected"] for cell in cells), [cell["missing"] for cell in cells]
