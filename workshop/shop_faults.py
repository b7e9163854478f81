"""The faults of `make faults`, made for real while the participant's file sells."""

from loadtest.faults import FAULTS
from loadtest.faults.fault import Fault
from loadtest.faults.runner import play
from loadtest.faults.testbed import RIVALS_NODE
from loadtest.faults.trial import MEASURED_TTL_TOLERANCE
from loadtest.judge.run import Cell
from loadtest.stack.client import StrategyFacts
from workshop.bench import MINE, Bench
from workshop.refusal import Refusal, Undecided

#: Fault -> a strategy that stays exact under it. It is judged with the participant's, at the same
#: moments: if it does not stay exact, this machine was too busy to say anything.
CONTROLS = {
    "crash": "token",
    "late-release": "token",
    "slow": "token-watchdog",
    "pause": "redis",
}
#: What the whole row has to withstand, in this order.
ROW = (
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
#: Seconds that a lock with a ttl of its own may live in lesson 12: after a crash all wait for it.
LONGEST_TTL = 5.0
#: Nothing to be seen of these where no lock in Redis is taken.
OF_A_LOCK = frozenset({"late-release", "pause@acquired", "restart", "eviction", "lost-reply"})


def refusal(bench: Bench, fault: str) -> Refusal | None:
    """A fault's damage to the participant's sale; None if it stayed exact. Raises Undecided."""
    for _ in range(2):  # so that one bad moment of the machine refuses nothing that is right
        cell, control = cells(bench, fault, CONTROLS[fault])
        if cell["verdict"] == "exact":
            return None
        if control["verdict"] != "exact":
            why = cell["missing"] or f"{control['lock']} was {control['verdict']} here"
            raise Undecided(f"{fault}: {why}")
        if cell["verdict"] == "deadlock":  # no busy machine makes that
            break
    if cell["missing"]:
        return _not_like(control, cell)
    return Refusal(f"{fault}-in-the-shop", cell, tuple(cell["story"]))


def cells(bench: Bench, fault: str, *controls: str) -> list[Cell]:
    """Make one fault for the participant's file and for these strategies."""
    return _play(FAULTS[fault](bench), *controls)


def _play(fault: Fault, *controls: str) -> list[Cell]:
    """Make this fault for the participant's file and for these strategies."""
    shop = fault.testbed.shop(RIVALS_NODE)
    strategies = {str(strategy["name"]): strategy for strategy in shop.strategies()}
    mine: StrategyFacts = {**strategies[MINE], "verdicts": {fault.name: "exact"}}
    chosen = [mine, *(strategies[name] for name in controls)]
    return play(fault, chosen)


def row(bench: Bench) -> tuple[Refusal | None, list[Cell]]:
    """The whole row up to the first column that is not exact. Raises Undecided."""
    row_cells: list[Cell] = []
    own_ttl = 0.0  # of a lock that does not take the shop's
    for fault in ROW:
        bench.progress(f"{fault}: {FAULTS[fault].title}")
        cell, lives = _cell_with_ttl(bench, fault, own_ttl)
        if lives > LONGEST_TTL:
            return Refusal("lives-too-long", {"lives": lives, "most": LONGEST_TTL}), row_cells
        if lives > own_ttl:  # made again with the nodes' ttl as long as that
            own_ttl = lives
            cell, _ = _cell_with_ttl(bench, fault, own_ttl)
        if cell["verdict"] not in ("exact", "deadlock"):  # one bad moment decides nothing
            cell, _ = _cell_with_ttl(bench, fault, own_ttl)
        if cell["missing"] and fault in OF_A_LOCK:
            bench.progress(f"{fault}: left out, {cell['missing']}")
            continue
        # No verdict is expected of a participant's file.
        row_cells.append({**cell, "as_expected": True})
        if cell["verdict"] == "unknown" or cell["missing"]:
            return _beside_another(bench, fault), row_cells
        if cell["verdict"] != "exact":
            return Refusal("breaks", cell, tuple(cell["story"])), row_cells
    return None, row_cells


def _cell_with_ttl(bench: Bench, name: str, ttl: float) -> tuple[Cell, float]:
    """Make one fault for the participant's file, with locks that live at least `ttl` seconds.

    Returns the cell, and for how many seconds the file's lock lives where that is longer than the
    fault allows; else 0.
    """
    fault = FAULTS[name](bench)
    fault.ttl = max(fault.ttl, ttl)
    [cell] = _play(fault)
    lives = max((trial.lock_ttl or 0.0 for trial in fault.trials), default=0.0)
    return cell, lives if lives > fault.ttl * MEASURED_TTL_TOLERANCE else 0.0


def _beside_another(bench: Bench, fault: str) -> Refusal:
    """A fault that showed nothing is made once more, with a strategy that stays exact: is it the
    machine, or the participant's code? Raises Undecided for the machine."""
    cell, control = cells(bench, fault, "redis")
    if control["verdict"] != "exact" or not (cell["missing"] or cell["verdict"] == "unknown"):
        raise Undecided(f"{fault}: {cell['missing'] or 'nothing to be seen'}")
    return _not_like(control, cell)


def _not_like(control: Cell, cell: Cell) -> Refusal:
    """The refusal where a fault showed nothing of the participant's, and did of another's."""
    missing = cell["missing"] or cell["why"] or "nothing was to be seen"
    facts = {**cell, "missing": missing, "control": control["lock"]}
    return Refusal("not-like-the-others", facts)
