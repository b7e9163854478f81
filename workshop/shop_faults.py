"""Checks that cause the faults of `make faults` while the participant's file sells.

The result of a strategy under a fault is a Cell: the verdict on its sale, with more fields. The
field `missing` is the reason why the cell is inconclusive, for example because the fault had no
effect on the strategy; otherwise it is empty. The participant's file is the strategy `mine`.
"""

from loadtest.faults import FAULTS
from loadtest.faults.fault import Fault
from loadtest.faults.runner import run_fault
from loadtest.faults.testbed import RIVALS_NODE
from loadtest.faults.trial import MEASURED_TTL_TOLERANCE
from loadtest.judge.run import Cell
from loadtest.stack.client import StrategyFacts
from workshop.bench import MINE, Bench
from workshop.refusal import Refusal, Undecided

#: Fault -> its control: a strategy that stays exact under this fault. The control sells at the same
#: time as the participant's file, and is judged as well. If the control does not stay exact, this
#: machine is too busy to decide anything. Each key is also the name of a check in lessons.toml.
CONTROLS = {
    "crash": "token",
    "late-release": "token",
    "slow": "token-watchdog",
    "pause": "redis",
}
#: The faults of lesson 12, in the order in which they are caused. loadtest/faults describes them.
LESSON_12_FAULTS = (
    "crash",
    "slow",
    "late-release",
    "pause",
    "pause@acquired",
    "restart",
    "eviction",
    "lost-reply",
    "unknown-commit",
    "stall",
    "db-kill",
    "shutdown",
    "shutdown@short",
)
#: The longest ttl that the participant's lock may have in lesson 12. After a crash all buyers wait
#: for the end of the ttl, and so does the check.
LONGEST_TTL_SECONDS = 5.0
#: Faults that have no effect on a strategy that takes no lock in Redis.
LOCK_FAULTS = frozenset({"late-release", "pause@acquired", "restart", "eviction", "lost-reply"})
#: A strategy that stays exact under each of LESSON_12_FAULTS.
SOUND_STRATEGY = "redis"


def check_fault(bench: Bench, fault: str) -> Refusal | None:
    """Cause a fault. Return the refusal of the participant's file, or None for the verdict `exact`.

    The control is a strategy with the verdict `exact` under this fault, if the machine is not too
    busy. Raises Undecided if the control gets another verdict.
    """
    for _ in range(2):  # if the machine is busy for a moment, correct code must not be refused
        cell, control_cell = _run_with_control(bench, fault, CONTROLS[fault])
        if cell["verdict"] == "exact":
            return None
        if control_cell["verdict"] != "exact":
            verdict_on_control = f"{control_cell['lock']} was {control_cell['verdict']} here"
            raise Undecided(f"{fault}: {cell['missing'] or verdict_on_control}")
        if cell["verdict"] == "deadlock":  # a busy machine does not cause a deadlock
            break
    if cell["missing"]:  # the reason why the cell is inconclusive
        return _refuse_unaffected_file(control_cell, cell)
    return Refusal(f"{fault}-in-the-shop", cell, tuple(cell["story"]))


def _run_with_control(bench: Bench, fault: str, control: str) -> tuple[Cell, Cell]:
    """Cause a fault for the participant's file and a control, another strategy.

    Return the result (cell) of the file and that of the control.
    """
    cell, control_cell = _run_fault(FAULTS[fault](bench), control)
    return cell, control_cell


def _run_fault(fault: Fault, *controls: str) -> list[Cell]:
    """Cause a fault while the participant's file and the control strategies sell.

    Return the result (cell) of the file, then those of the controls.

    controls  the names of strategies that sell at the same time, for comparison
    """
    shop = fault.testbed.shop(RIVALS_NODE)
    strategies = {str(strategy["name"]): strategy for strategy in shop.strategies()}
    # run_fault() leaves out a strategy without an expected verdict. So `mine` gets one, which is
    # not used.
    mine: StrategyFacts = {**strategies[MINE], "verdicts": {fault.name: "exact"}}
    return run_fault(fault, [mine, *(strategies[control] for control in controls)])


def check_all_faults(bench: Bench) -> tuple[Refusal | None, list[Cell]]:
    """Cause LESSON_12_FAULTS, one after the other, until the participant's file is refused.

    Return the refusal, or None, and the cells so far. A cell is the result of the file under one
    fault. If a fault of LOCK_FAULTS had no effect, its cell is left out. Any other inconclusive
    cell leads to a refusal, or to Undecided if the machine is its cause.
    """
    cells: list[Cell] = []
    # The longest ttl of the participant's lock for which a fault did not wait long enough; 0 if
    # there was none. All further faults wait for this ttl.
    longest_lock_ttl = 0.0
    for fault in LESSON_12_FAULTS:
        bench.progress(f"{fault}: {FAULTS[fault].title}")
        cell, lock_ttl = _run_with_ttl(bench, fault, longest_lock_ttl)
        if lock_ttl > LONGEST_TTL_SECONDS:
            ttl_details = {"lock_ttl": lock_ttl, "longest_ttl": LONGEST_TTL_SECONDS}
            return Refusal("lives-too-long", ttl_details), cells
        if lock_ttl > longest_lock_ttl:
            # The fault waited for the end of a shorter ttl, so cause it again.
            longest_lock_ttl = lock_ttl
            cell, _ = _run_with_ttl(bench, fault, longest_lock_ttl)
        # Try again, because a busy machine must not lead to the refusal of correct code. A deadlock
        # is not repeated: a busy machine does not cause one.
        if cell["verdict"] not in ("exact", "deadlock"):
            cell, _ = _run_with_ttl(bench, fault, longest_lock_ttl)
        if cell["missing"] and fault in LOCK_FAULTS:
            bench.progress(f"{fault}: left out, {cell['missing']}")
            continue
        # A participant's file has no expected verdicts, so none of its verdicts is unexpected.
        cells.append({**cell, "as_expected": True})
        if _is_inconclusive(cell):
            return _explain_inconclusive_cell(bench, fault), cells
        if cell["verdict"] != "exact":
            details = {**cell, "title": FAULTS[fault].title}
            return Refusal("breaks", details, tuple(cell["story"])), cells
    return None, cells


def _run_with_ttl(bench: Bench, fault_name: str, min_ttl: float) -> tuple[Cell, float]:
    """Cause a fault while the participant's file sells. Return the result (cell) and a ttl.

    The fault waits for `fault.ttl` seconds until the file's lock has expired. This is too short if
    the lock's real ttl is longer. The real ttl is measured while the fault happens. The returned
    ttl is the measured one if it is longer than `fault.ttl`; then the caller should cause the fault
    again. Otherwise the returned ttl is 0.

    min_ttl  the least value of `fault.ttl`, in seconds
    """
    fault = FAULTS[fault_name](bench)
    fault.ttl = max(fault.ttl, min_ttl)
    [cell] = _run_fault(fault)
    lock_ttl = max((trial.measured_ttl or 0.0 for trial in fault.trials), default=0.0)
    if lock_ttl <= fault.ttl * MEASURED_TTL_TOLERANCE:
        lock_ttl = 0.0
    return cell, lock_ttl


def _is_inconclusive(cell: Cell) -> bool:
    """Return whether the fault had no effect on the strategy, or the judge could not decide."""
    # `missing` is the reason why the cell is inconclusive; otherwise it is empty.
    return cell["verdict"] == "unknown" or bool(cell["missing"])


def _explain_inconclusive_cell(bench: Bench, fault: str) -> Refusal:
    """Find out whether the participant's file is the cause of an inconclusive cell.

    A cell is the result of the file under a fault. Cause the fault again, for the file and
    SOUND_STRATEGY. If the file's cell is inconclusive again although SOUND_STRATEGY is exact,
    return the refusal of the file. Otherwise raise Undecided, because the machine may be the cause.
    """
    cell, control_cell = _run_with_control(bench, fault, SOUND_STRATEGY)
    if control_cell["verdict"] != "exact" or not _is_inconclusive(cell):
        raise Undecided(f"{fault}: {cell['missing'] or 'the fault had no visible effect'}")
    return _refuse_unaffected_file(control_cell, cell)


def _refuse_unaffected_file(control_cell: Cell, cell: Cell) -> Refusal:
    """Return the refusal for a fault that affected the control, but not the participant's file."""
    # `missing` is why the cell is inconclusive, and `why` is why its verdict is `unknown`.
    missing_effect = cell["missing"] or cell["why"] or "the fault had no visible effect"
    details = {**cell, "missing": missing_effect, "control": control_cell["lock"]}
    return Refusal("not-like-the-others", details)
