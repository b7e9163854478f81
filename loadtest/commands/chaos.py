"""The command `chaos`: rushes with random faults at random times, called disturbances.

Each rush has a sale for every sound strategy, and one for every canary. A cell has the figures and
the verdict of one such sale.

The seed of the run decides which faults happen in each rush, when and for how long. The same seed
repeats the faults, but not the interleaving of threads and servers. So if a sound strategy breaks,
the history is written to the results.

Canaries are locks that are known to break under such faults. A run in which a canary does not break
is inconclusive, because it could have missed a flaw of a sound strategy, too.
"""

import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from secrets import randbits

from rich.console import Console

from loadtest.commands.faults import THREADS_PER_NODE, refuse_external_servers
from loadtest.commands.output import Output
from loadtest.expected import UNBROKEN_STRATEGIES
from loadtest.faults.chaos_rush import (
    DISTURBANCES,
    LEASE_RAN_OUT_MESSAGE,
    NO_DISTURBANCE_SEEN_MESSAGE,
    ChaosRush,
    Disturbance,
    run_chaos_rush,
)
from loadtest.faults.testbed import Testbed
from loadtest.judge import history
from loadtest.judge.run import Cell, Summary
from loadtest.judge.verdict import EXIT_CODES
from loadtest.report import tables
from loadtest.stack.stack import StackError
from loadtest.stack.strategies import list_complaints

#: Locks that break under such faults. If one does not, the run is inconclusive.
CANARIES = ("token", "token-watchdog", "reentrant", "fence-at-write", "setpx-del")
MAX_DISTURBANCES_PER_RUSH = 3
#: The random `hold_ms` of a rush, the milliseconds between check and decrement, is chosen from the
#: first list if one of its disturbances can take the lock from its holder, otherwise from the
#: second. The first list has no 0, because few faults would hit a critical section of about 1 ms.
#: It has 120 twice, so that 120 is twice as likely as 60.
HOLD_MS_IF_LOCK_IS_TAKEN = [60, 120, 120]
HOLD_MS_IF_LOCK_IS_KEPT = [60, 0]
#: If a disturbance was tried at least this often, but was never seen to happen, the run is
#: inconclusive.
MIN_TRIES = 3
#: If a larger share of the rushes fails, the whole run is inconclusive.
MAX_FAILED_RUSH_SHARE = 0.01


def list_cells(rushes: Sequence[ChaosRush]) -> list[Cell]:
    """Return the cells of all rushes. A cell has the figures and the verdict of one sale."""
    cells: list[Cell] = []
    for rush in rushes:
        cells += rush.cells
    return cells


def find_broken_canaries(rushes: Sequence[ChaosRush]) -> dict[str, int]:
    """Return each canary that broke, and the number of the first rush in which it broke.

    Canaries are locks that are known to break under random faults. A lock breaks if a sale under it
    is oversold or loses updates.
    """
    # In reverse order, so that the first rush remains: a later dict entry replaces an earlier one.
    return {
        cell["lock"]: cell["round"]
        for cell in reversed(list_cells(rushes))
        if cell["lock"] in CANARIES and (cell["oversold"] or (cell["lost_updates"] or 0) > 0)
    }


def find_failures_of_sound_strategies(rushes: Sequence[ChaosRush]) -> list[Cell]:
    """Return the cells in which a sound strategy broke.

    A cell has the figures and the verdict of one sale. Its field `missing` is the reason why it is
    inconclusive, or empty. An inconclusive cell is returned only if its sale is oversold.
    """
    sound_cells = [cell for cell in list_cells(rushes) if cell["lock"] not in CANARIES]
    unexpected_cells = [cell for cell in sound_cells if not cell["as_expected"]]
    return [cell for cell in unexpected_cells if not cell["missing"] or cell["oversold"]]


def list_inconclusive_reasons(rushes: Sequence[ChaosRush]) -> list[str]:
    """Return why the run is inconclusive, one sentence for each reason; empty if it is not.

    The reasons are disturbances (faults at random times) that were never seen to happen, leases
    that ran out, canaries (locks that must break) that did not break, and failed rushes.
    """
    failed_rushes = [rush for rush in rushes if rush.failure]
    tries_by_disturbance: Counter[str] = Counter()
    seen_disturbances: set[str] = set()
    for rush in rushes:
        if not rush.failure:
            tries_by_disturbance.update(disturbance.name for disturbance in rush.disturbances)
            seen_disturbances.update(rush.evidence)
    unseen_disturbances = [
        name
        for name, count in tries_by_disturbance.items()
        if count >= MIN_TRIES and name not in seen_disturbances
    ]
    # `missing` is the reason why a cell is inconclusive.
    locks_whose_lease_ran_out = dict.fromkeys(
        cell["lock"] for cell in list_cells(rushes) if cell["missing"] == LEASE_RAN_OUT_MESSAGE
    )
    unbroken_canaries = [name for name in CANARIES if name not in find_broken_canaries(rushes)]
    reasons = []
    if not seen_disturbances:
        reasons.append(NO_DISTURBANCE_SEEN_MESSAGE)
    reasons += [f"{name} was never seen to happen" for name in unseen_disturbances]
    reasons += [
        f"{lock}: {LEASE_RAN_OUT_MESSAGE}"
        for lock in locks_whose_lease_ran_out
        if lock not in CANARIES
    ]
    reasons += [f"canary {name} did not break" for name in unbroken_canaries]
    if len(failed_rushes) > len(rushes) * MAX_FAILED_RUSH_SHARE:
        reasons.append(
            f"{len(failed_rushes)} of {len(rushes)} rushes failed, more than one in a hundred"
        )
    return reasons


def choose_exit_code(rushes: Sequence[ChaosRush]) -> int:
    """Return the exit code of a run with these rushes, in which random faults were injected.

    It is 1 if a sound strategy (UNBROKEN_STRATEGIES) broke. Otherwise it is EXIT_CODES["unknown"]
    if the run is inconclusive, and else 0.
    """
    if find_failures_of_sound_strategies(rushes):
        return 1
    if list_inconclusive_reasons(rushes):
        return EXIT_CODES["unknown"]
    return 0


def run(console: Console, *, minutes: float = 2.0, seed: int | None = None) -> int:
    """Run one rush after the other until the time has passed or a sound strategy breaks.

    In a rush, many buyers buy under each strategy, while random faults are injected. Writes
    summary.json after each rush. Returns the exit code; see choose_exit_code(). Raises StackError
    if an external server is configured or the shop describes a strategy wrongly, and EmbeddedError
    if a server does not start.

    seed  the seed of the random choices of the run; None: a random seed
    """
    refuse_external_servers()
    if seed is None:
        seed = randbits(32)
    rushes: list[ChaosRush] = []
    with (
        Output(console) as out,
        Testbed(log=out.log, progress=out.progress, threads=THREADS_PER_NODE) as testbed,
    ):
        console.print(f"chaos for {minutes:g} minutes, seed {seed}")
        try:
            _run_rushes(testbed, minutes, seed, rushes, out)
        finally:
            if find_failures_of_sound_strategies(rushes):
                history.write(out.path / "history.jsonl", testbed.events())
            if rushes:
                out.finish()
    _print_conclusion(console, rushes, seed)
    out.print_files("summary.json")
    return choose_exit_code(rushes)


def _print_conclusion(console: Console, rushes: Sequence[ChaosRush], seed: int) -> None:
    """Print the broken strategies and canaries, why the run is inconclusive, and the totals.

    Canaries are locks that are known to break under random faults. A disturbance is such a fault,
    injected at a random time.
    """
    broken_cells = find_failures_of_sound_strategies(rushes)
    for cell in broken_cells:
        console.print(f"{cell['lock']}: {cell['verdict']} {cell['violations']}", style="bold red")
        console.print("\n".join(cell["story"]))  # the events that led to the verdict
    canaries = ", ".join(
        f"{lock} in rush {number}" for lock, number in find_broken_canaries(rushes).items()
    )
    console.print(f"canaries that broke: {canaries or 'none'}")
    failed_rushes = [rush for rush in rushes if rush.failure]
    for rush in failed_rushes:
        console.print(f"rush {rush.number} failed: {rush.failure}", style="yellow", markup=False)
    for reason in list_inconclusive_reasons(rushes):
        console.print(f"inconclusive: {reason}", style="yellow")
    console.print(
        f"{len(rushes)} rushes, {sum(cell['orders'] for cell in list_cells(rushes))} orders, "
        f"{sum(len(rush.disturbances) for rush in rushes)} disturbances, "
        f"{sum(len(rush.evidence) for rush in rushes)} seen to happen; "
        f"{len(broken_cells)} violations; "
        f"{len(failed_rushes)} rushes failed; seed {seed}",
        style="bold",
    )


def _run_rushes(
    testbed: Testbed, minutes: float, seed: int, rushes: list[ChaosRush], out: Output
) -> None:
    """Run the rushes. Add each rush to `rushes` before it begins, so that the caller can report it.

    Raises StackError if the shop describes a strategy wrongly.
    """
    summary: Summary = {**out.make_summary(testbed, []), "seed": seed, "minutes": minutes}
    rng = Random(seed)
    shuffled_disturbances = _shuffle_disturbances(rng)
    strategies = testbed.strategies(sorted(set(UNBROKEN_STRATEGIES) | set(CANARIES)))
    if complaints := list_complaints(strategies):
        raise StackError("; ".join(complaints))
    strategies = [strategy for strategy in strategies if strategy["available"]]
    ends_at = time.monotonic() + minutes * 60
    while time.monotonic() < ends_at and not find_failures_of_sound_strategies(rushes):
        number = len(rushes) + 1
        minutes_left = max(0, ends_at - time.monotonic()) / 60
        out.progress(f"rush {number}, {minutes_left:.1f} minutes left")
        rush = _draw_rush(number, rng, shuffled_disturbances)
        rushes.append(rush)
        try:
            run_chaos_rush(testbed, rush, strategies)
        except Exception as error:  # the run goes on after a failed rush
            testbed.log.write(traceback.format_exc().encode())
            rush.failure = f"{type(error).__name__}: {error}"
        summary["rushes"] = [past_rush.as_summary() for past_rush in rushes]
        summary["runs"] = list_cells(rushes)
        summary["canaries"] = find_broken_canaries(rushes)
        tables.write_summary(out.path, summary)
        if rush.disturbance_errors or rush.failure:
            testbed.repair()


def _draw_rush(number: int, rng: Random, shuffled_disturbances: Iterator[Disturbance]) -> ChaosRush:
    """Return a rush with random disturbances, a random `hold_ms` and a random seed.

    A disturbance is a fault at a random time. No disturbance occurs twice in the rush. `hold_ms` is
    the time between check and decrement.
    """
    count = rng.randint(1, MAX_DISTURBANCES_PER_RUSH)
    disturbances_by_name = {
        disturbance.name: disturbance for disturbance in islice(shuffled_disturbances, count)
    }
    disturbances = list(disturbances_by_name.values())
    hold_ms_choices = HOLD_MS_IF_LOCK_IS_KEPT
    if any(disturbance.takes_the_lock for disturbance in disturbances):
        hold_ms_choices = HOLD_MS_IF_LOCK_IS_TAKEN
    seed_of_rush = rng.getrandbits(32)
    return ChaosRush(number, seed_of_rush, disturbances, rng.choice(hold_ms_choices))


def _shuffle_disturbances(rng: Random) -> Iterator[Disturbance]:
    """Yield all disturbances in a random order, then all in a new random order, endlessly."""
    while True:
        yield from rng.sample(DISTURBANCES, len(DISTURBANCES))
