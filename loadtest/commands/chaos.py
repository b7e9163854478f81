"""Rushes for the sound strategies and for canaries, with random faults at random times.

Every rush has a seed of its own, drawn from the run's, for which faults come when and for how long.
A seed repeats the faults but not the interleaving of threads and servers, so the history of a
violation is kept. Canaries are locks that break under such faults. A run in which one of them
does not break would have missed a broken sound lock too, so it shows nothing.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from rich.console import Console

from loadtest.commands.faults import THREADS, refuse_external_servers
from loadtest.commands.output import Output, output
from loadtest.expected import UNBROKEN
from loadtest.faults.chaos_rush import Rush, play
from loadtest.faults.disturbances import DISTURBANCES, Disturbance
from loadtest.faults.repair import repair
from loadtest.faults.testbed import Testbed
from loadtest.judge.history import write
from loadtest.judge.run import Cell, Summary
from loadtest.judge.verdict import EXIT_CODES
from loadtest.report import tables as report

#: Locks that must be seen to break.
CANARIES = ("token", "token-watchdog", "reentrant", "fence-at-write", "setpx-del")
#: How many disturbances a rush has at most.
MOST_AT_ONCE = 3
#: Milliseconds between check and decrement: where a disturbance may take the lock away, and where
#: none may. With 0 the critical section takes about 1 ms, and hardly any fault hits it.
HOLDS = ((60, 120, 120), (60, 0))
#: A disturbance that was tried so often and never seen to happen is broken.
TRIES = 3


@dataclass
class Found:
    """What the rushes showed.

    canaries  lock -> the first rush in which it broke
    why       why the run shows nothing, one sentence each
    """

    rushes: list[Rush] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    canaries: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[Cell]:
        """The sales of sound strategies that broke. A sale that shows nothing is not one of
        them."""
        sound = [cell for cell in self.cells if cell["lock"] not in CANARIES]
        return [c for c in sound if not c["as_expected"] and (not c["missing"] or c["oversold"])]

    @property
    def why(self) -> list[str]:
        made = [one for rush in self.rushes for one in rush.made]
        proven = [one.name for one in made if one.evidence]
        tried = [one.name for one in made]
        idle = [n for n in dict.fromkeys(tried) if n not in proven and tried.count(n) >= TRIES]
        missing = [lock for lock in CANARIES if lock not in self.canaries]
        return [
            *([] if proven else ["no disturbance was seen to happen"]),
            *(f"{name} was never seen to happen" for name in idle),
            *(f"{lock}, which must break, was not seen to" for lock in missing),
            *self.errors,
        ]

    @property
    def exit_code(self) -> int:
        """0; 1 if a sound strategy was violated; EXIT_CODES["unknown"] if nothing is shown."""
        if self.broken:
            return 1
        return EXIT_CODES["unknown"] if self.why else 0

    def add(self, rush: Rush, cells: Sequence[Cell]) -> None:
        """Add the cells of a rush, and note the canaries that broke in it."""
        self.rushes.append(rush)
        self.cells += cells
        for cell in cells:
            if cell["lock"] in CANARIES and (cell["oversold"] or (cell["lost_updates"] or 0) > 0):
                self.canaries.setdefault(cell["lock"], rush.number)


def run(minutes: float, seed: int, console: Console, *, verbose: bool = False) -> int:
    """Run one rush after the other until the time is over or a sound strategy is violated; write
    summary.json after each.

    Returns what `Found.exit_code` says. Raises StackError for a server that is not the run's own,
    or when a part does not start.
    """
    refuse_external_servers()
    chance = Random(seed)
    found = Found()
    with (
        output(console, verbose=verbose) as out,
        Testbed(log=out.folder.log, progress=out.progress, threads=THREADS) as testbed,
    ):
        console.print(f"chaos for {minutes:g} minutes, seed {seed}", highlight=False)
        summary: Summary = {**out.summary(testbed, []), "seed": seed, "minutes": minutes}
        try:
            _rushes(testbed, found, minutes, chance, summary, out, verbose=verbose)
        finally:
            if found.rushes:
                if found.broken:
                    write(out.folder.path / "history.jsonl", testbed.events())
                out.finish()
    _report(found, seed, console)
    out.print_files("summary.json")
    return found.exit_code


def _rushes(
    testbed: Testbed,
    found: Found,
    minutes: float,
    chance: Random,
    summary: Summary,
    out: Output,
    *,
    verbose: bool,
) -> None:
    end = time.monotonic() + minutes * 60
    deck = _deck(chance)
    strategies = {one["name"]: one for one in testbed.shop().strategies()}
    while time.monotonic() < end and not found.broken:
        number = len(found.rushes) + 1
        left = max(0, end - time.monotonic()) / 60
        out.progress(f"rush {number}, {left:.1f} minutes left")
        chosen = _deal(deck, chance.randint(1, MOST_AT_ONCE))
        locks = (*UNBROKEN, *CANARIES)
        holds = HOLDS[0 if any(one.takes_the_lock for one in chosen) else 1]
        rush = Rush(number, chance.getrandbits(32), locks, chosen, chance.choice(holds))
        cells: list[Cell] = []
        try:
            cells = play(testbed, rush, strategies)
        except Exception as error:
            testbed.log.write(traceback.format_exc().encode())
            found.errors.append(f"rush {number} broke: {type(error).__name__}: {error}")
            repair(testbed)
        found.add(rush, cells)
        summary["rushes"] = [one.as_summary() for one in found.rushes]
        summary["runs"] = found.cells
        summary["canaries"] = dict(found.canaries)
        report.write_summary(out.folder.path, summary)
        if verbose:
            shown = ", ".join(f"{one.name} ({one.evidence or 'not seen'})" for one in rush.made)
            line = f"rush {number}, {rush.seconds} s, hold {rush.hold_ms} ms: {shown}"
            out.console.print(line, highlight=False)
        if any(one.error for one in rush.made):
            repair(testbed)


def _deck(chance: Random) -> Iterator[Disturbance]:
    """Endlessly: every disturbance as often as its weight says, each time in a new random order."""
    cards = [one for one in DISTURBANCES for _ in range(one.weight)]
    while True:
        yield from chance.sample(cards, len(cards))


def _deal(deck: Iterator[Disturbance], how_many: int) -> list[Disturbance]:
    """The next so many of the deck, each once."""
    dealt: dict[str, Disturbance] = {}
    while len(dealt) < how_many:
        one = next(deck)
        dealt.setdefault(one.name, one)
    return list(dealt.values())


def _report(found: Found, seed: int, console: Console) -> None:
    for cell in found.broken:
        console.print(f"{cell['lock']}: {cell['verdict']} {cell['violations']}", style="bold red")
        console.print("\n".join(cell["story"]), highlight=False)
    made = [one for rush in found.rushes for one in rush.made]
    proven = sum(bool(one.evidence) for one in made)
    canaries = ", ".join(f"{lock} in rush {number}" for lock, number in found.canaries.items())
    console.print(f"canaries that broke: {canaries or 'none'}", highlight=False)
    for why in found.why:
        console.print(f"shows nothing: {why}", style="yellow", highlight=False)
    orders = sum(cell["orders"] for cell in found.cells)
    console.print(
        f"{len(found.rushes)} rushes, {orders} orders, {len(made)} disturbances, {proven} seen to "
        f"happen, up to {max((rush.at_once for rush in found.rushes), default=0)} at once; "
        f"{len(found.broken)} violations; seed {seed}",
        style="bold",
        highlight=False,
    )
