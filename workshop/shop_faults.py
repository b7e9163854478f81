"""Checks that cause the faults of `make faults` while the participant's file sells."""

from loadtest.faults import FAULTS
from loadtest.faults.fault import Fault
from loadtest.faults.runner import run_fault
from loadtest.faults.testbed import RIVALS_NODE
from loadtest.faults.trial import MEASURED_TTL_TOLERANCE
from loadtest.judge.run import Cell
from loadtest.stack.client import StrategyFacts
from workshop.bench import MINE, Bench
from workshop.refusal import Refusal, Undecided

#: Fault -> a strategy that stays exact under it. It sells together with the participant's file, and
#: is judged as well: if it does not stay exact, this machine was too busy to decide anything.
CONTROLS = {
    "crash": "token",
    "late-release": "token",
    "slow": "token-watchdog",
    "pause": "redis",
}
#: The faults of lesson 12, in the order in which they are caused.
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
#: The longest ttl that a lock may choose in lesson 12: after a crash all buyers wait for its end.
LONGEST_TTL_SECONDS = 5.0
#: Faults without an effect on a strategy that takes no lock in Redis.
LOCK_FAULTS = frozenset({"late-release", "pause@acquired", "restart", "eviction", "lost-reply"})


def check_fault(bench: Bench, fault: str) -> Refusal | None:
    """Cause a fault, and return the refusal; None if the sale stayed exact.

    Raises Undecided if the control, too, did not stay exact.
    """
    for _ in range(2):  # one bad moment of a busy machine must not refuse correct code
        cell, control = make_cells(bench, fault, CONTROLS[fault])
        if cell["verdict"] == "exact":
            return None
        if control["verdict"] != "exact":
            why = cell["missing"] or f"{control['lock']} was {control['verdict']} here"
            raise Undecided(f"{fault}: {why}")
        if cell["verdict"] == "deadlock":  # a busy machine does not cause a deadlock
            break
    if cell["missing"]:
        return _refuse_without_effect(control, cell)
    return Refusal(f"{fault}-in-the-shop", cell, tuple(cell["story"]))


def make_cells(bench: Bench, fault: str, *controls: str) -> list[Cell]:
    """Cause a fault for the participant's file and for these strategies; return their cells."""
    return _play(FAULTS[fault](bench), *controls)


def _play(fault: Fault, *controls: str) -> list[Cell]:
    """Cause this fault for the participant's file and for these strategies; return their cells."""
    shop = fault.testbed.shop(RIVALS_NODE)
    strategies = {str(strategy["name"]): strategy for strategy in shop.strategies()}
    mine: StrategyFacts = {**strategies[MINE], "verdicts": {fault.name: "exact"}}
    chosen = [mine, *(strategies[name] for name in controls)]
    return run_fault(fault, chosen)


def check_all_faults(bench: Bench) -> tuple[Refusal | None, list[Cell]]:
    """Cause LESSON_12_FAULTS, one after the other, up to the first refusal.

    Return the refusal, or None, and the cells so far. Raises Undecided if a fault has no effect.
    """
    cells: list[Cell] = []
    longest_own_ttl = 0.0  # of the participant's lock, if it has a longer ttl than the shop's
    for fault in LESSON_12_FAULTS:
        bench.progress(f"{fault}: {FAULTS[fault].title}")
        cell, own_ttl = _cell_with_ttl(bench, fault, longest_own_ttl)
        if own_ttl > LONGEST_TTL_SECONDS:
            facts = {"lives": own_ttl, "most": LONGEST_TTL_SECONDS}
            return Refusal("lives-too-long", facts), cells
        if own_ttl > longest_own_ttl:  # repeat the fault with this as the nodes' ttl
            longest_own_ttl = own_ttl
            cell, _ = _cell_with_ttl(bench, fault, longest_own_ttl)
        # One bad moment of a busy machine must not refuse correct code; it causes no deadlock.
        if cell["verdict"] not in ("exact", "deadlock"):
            cell, _ = _cell_with_ttl(bench, fault, longest_own_ttl)
        if cell["missing"] and fault in LOCK_FAULTS:
            bench.progress(f"{fault}: left out, {cell['missing']}")
            continue
        # A participant's file has no expected verdicts.
        cells.append({**cell, "as_expected": True})
        if cell["verdict"] == "unknown" or cell["missing"]:
            return _repeat_with_control(bench, fault), cells
        if cell["verdict"] != "exact":
            broken_facts = {**cell, "title": FAULTS[fault].title}
            return Refusal("breaks", broken_facts, tuple(cell["story"])), cells
    return None, cells


def _cell_with_ttl(bench: Bench, name: str, ttl: float) -> tuple[Cell, float]:
    """Cause a fault for the participant's file, with a ttl of at least `ttl` seconds.

    Return the cell, and the ttl of the file's own lock if that is longer than the fault's, else 0.
    """
    fault = FAULTS[name](bench)
    fault.ttl = max(fault.ttl, ttl)
    [cell] = _play(fault)
    own_ttl = max((trial.measured_ttl or 0.0 for trial in fault.trials), default=0.0)
    return cell, own_ttl if own_ttl > fault.ttl * MEASURED_TTL_TOLERANCE else 0.0


def _repeat_with_control(bench: Bench, fault: str) -> Refusal:
    """Repeat a fault that had no effect, together with a strategy that stays exact under it.

    Return the refusal if the fault has an effect on that strategy only. Otherwise the machine is
    the cause, not the participant's code: then raise Undecided.
    """
    cell, control = make_cells(bench, fault, "redis")
    if control["verdict"] != "exact" or not (cell["missing"] or cell["verdict"] == "unknown"):
        raise Undecided(f"{fault}: {cell['missing'] or 'nothing to be seen'}")
    return _refuse_without_effect(control, cell)


def _refuse_without_effect(control: Cell, cell: Cell) -> Refusal:
    """Return the refusal for a fault with an effect on the control's cell, not on the file's."""
    missing = cell["missing"] or cell["why"] or "nothing was to be seen"
    facts = {**cell, "missing": missing, "control": control["lock"]}
    return Refusal("not-like-the-others", facts)
