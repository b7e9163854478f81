"""Rushes for the sound strategies and for canaries, with random faults at random times.

Every rush has its own seed, drawn from the run's, for which faults come when and for how long.
A seed repeats the faults but not the interleaving of threads and servers, so the history of a
violation is kept. Canaries are locks that break under such faults. A run in which one of them
does not break would have missed a broken sound lock too, so it shows nothing.
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
from loadtest.expected import UNBROKEN
from loadtest.faults.chaos_rush import DISTURBANCES, NOTHING, RAN_OUT, ChaosRush, Disturbance, play
from loadtest.faults.testbed import Testbed
from loadtest.judge.history import write
from loadtest.judge.run import Cell, Summary
from loadtest.judge.verdict import EXIT_CODES
from loadtest.report import tables as report
from loadtest.stack.stack import StackError
from loadtest.stack.strategies import complaints_of

#: Locks that must be seen to break.
CANARIES = ("token", "token-watchdog", "reentrant", "fence-at-write", "setpx-del")
#: How many disturbances a rush has at most.
MOST_AT_ONCE = 3
#: Milliseconds between check and decrement: where a disturbance may take the lock away, and where
#: none may. With 0 the critical section takes about 1 ms, and hardly any fault hits it.
HOLDS_MS_LOCK_TAKEN = [60, 120, 120]
HOLDS_MS_LOCK_KEPT = [60, 0]
#: A disturbance that was tried this often and never seen to happen is broken.
MIN_TRIES = 3
#: Share of the rushes that may break; the results of the rest still count.
MOST_BROKEN = 0.01


def sales_of(rushes: Sequence[ChaosRush]) -> list[Cell]:
    """The sales of all rushes."""
    cells: list[Cell] = []
    for rush in rushes:
        cells += rush.cells
    return cells


def canaries_of(rushes: Sequence[ChaosRush]) -> dict[str, int]:
    """Each canary that broke, and the first rush in which it did."""
    return {
        cell["lock"]: cell["round"]
        for cell in reversed(sales_of(rushes))
        if cell["lock"] in CANARIES and (cell["oversold"] or (cell["lost_updates"] or 0) > 0)
    }


def violations(rushes: Sequence[ChaosRush]) -> list[Cell]:
    """The sales of sound strategies that broke. A sale that shows nothing is not one of them."""
    sound = [cell for cell in sales_of(rushes) if cell["lock"] not in CANARIES]
    off = [cell for cell in sound if not cell["as_expected"]]
    return [cell for cell in off if not cell["missing"] or cell["oversold"]]


def shortcomings(rushes: Sequence[ChaosRush]) -> list[str]:
    """Return the reasons why the run shows nothing, one sentence each."""
    broken = [rush for rush in rushes if rush.broke]
    tried: Counter[str] = Counter()
    happened: set[str] = set()
    for rush in rushes:
        if not rush.broke:
            tried.update(disturbance.name for disturbance in rush.chosen)
            happened.update(rush.evidence)
    idle = [name for name, times in tried.items() if times >= MIN_TRIES and name not in happened]
    slow = {cell["lock"]: cell for cell in sales_of(rushes) if cell["missing"] == RAN_OUT}
    unbroken = [name for name in CANARIES if name not in canaries_of(rushes)]
    reasons = []
    if not happened:
        reasons.append(NOTHING)
    reasons += [f"{name} was never seen to happen" for name in idle]
    reasons += [f"{lock}: {RAN_OUT}" for lock in slow if lock not in CANARIES]
    reasons += [f"{name}, which must break, was not seen to" for name in unbroken]
    if len(broken) > len(rushes) * MOST_BROKEN:
        reasons.append(f"{len(broken)} of {len(rushes)} rushes broke, more than one in a hundred")
    return reasons


def exit_code(rushes: Sequence[ChaosRush]) -> int:
    """0; 1 if a sound strategy was violated; EXIT_CODES["unknown"] if nothing is shown."""
    if violations(rushes):
        return 1
    if shortcomings(rushes):
        return EXIT_CODES["unknown"]
    return 0


def run(console: Console, *, minutes: float = 2.0, seed: int | None = None) -> int:
    """Run one rush after the other until the time is over or a sound strategy is violated; write
    summary.json after each. The rushes' seeds are drawn by `seed`.

    Returns what `exit_code` says. Raises StackError for a server that is not the run's own,
    and EmbeddedError when a part does not start.
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
            _play(testbed, minutes, seed, rushes, out)
        finally:
            if broken := violations(rushes):
                write(out.path / "history.jsonl", testbed.events())
            if rushes:
                out.finish()
    for cell in broken:
        console.print(f"{cell['lock']}: {cell['verdict']} {cell['violations']}", style="bold red")
        console.print("\n".join(cell["story"]))
    canaries = ", ".join(f"{lock} in rush {n}" for lock, n in canaries_of(rushes).items())
    console.print(f"canaries that broke: {canaries or 'none'}")
    for rush in rushes:
        if rush.broke:
            console.print(f"rush {rush.number} broke: {rush.broke}", style="yellow", markup=False)
    for why in shortcomings(rushes):
        console.print(f"shows nothing: {why}", style="yellow")
    console.print(
        f"{len(rushes)} rushes, {sum(cell['orders'] for cell in sales_of(rushes))} orders, "
        f"{sum(len(rush.chosen) for rush in rushes)} disturbances, "
        f"{sum(len(rush.evidence) for rush in rushes)} seen to happen; "
        f"{len(broken)} violations; {sum(bool(rush.broke) for rush in rushes)} rushes broke; "
        f"seed {seed}",
        style="bold",
    )
    out.print_files("summary.json")
    return exit_code(rushes)


def _play(
    testbed: Testbed, minutes: float, seed: int, rushes: list[ChaosRush], out: Output
) -> None:
    """Play them, and add each to `rushes` before it begins."""
    summary: Summary = {**out.summary(testbed, []), "seed": seed, "minutes": minutes}
    chance = Random(seed)
    deck = _deck(chance)
    strategies = testbed.strategies(sorted(set(UNBROKEN) | set(CANARIES)))
    if complaints := complaints_of(strategies):
        raise StackError("; ".join(complaints))
    strategies = [strategy for strategy in strategies if strategy["available"]]
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end and not violations(rushes):
        number = len(rushes) + 1
        left = max(0, end - time.monotonic()) / 60
        out.progress(f"rush {number}, {left:.1f} minutes left")
        dealt = islice(deck, chance.randint(1, MOST_AT_ONCE))
        chosen = list({disturbance.name: disturbance for disturbance in dealt}.values())
        holds = HOLDS_MS_LOCK_KEPT
        if any(disturbance.takes_the_lock for disturbance in chosen):
            holds = HOLDS_MS_LOCK_TAKEN
        rush = ChaosRush(number, chance.getrandbits(32), chosen, chance.choice(holds))
        rushes.append(rush)
        try:
            play(testbed, rush, strategies)
        except Exception as error:
            testbed.log.write(traceback.format_exc().encode())
            rush.broke = f"{type(error).__name__}: {error}"
        summary["rushes"] = [finished.as_summary() for finished in rushes]
        summary["runs"] = sales_of(rushes)
        summary["canaries"] = canaries_of(rushes)
        report.write_summary(out.path, summary)
        if rush.errors or rush.broke:
            testbed.repair()


def _deck(chance: Random) -> Iterator[Disturbance]:
    """Endlessly: every disturbance, each time in a new random order."""
    while True:
        yield from chance.sample(DISTURBANCES, len(DISTURBANCES))
