"""Rushes for the sound strategies and for canaries, with random faults at random times.

Every rush has a seed of its own, drawn from the run's, for which faults come when and for how long.
A seed repeats the faults but not the interleaving of threads and servers, so the history of a
violation is kept. Canaries are locks that break under such faults. A run in which one of them
does not break would have missed a broken sound lock too, so it shows nothing.
"""

import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from secrets import randbits

from rich.console import Console

from loadtest.commands.faults import THREADS, refuse_external_servers
from loadtest.commands.output import Output
from loadtest.expected import UNBROKEN
from loadtest.faults.chaos_rush import (
    DISTURBANCES,
    NOTHING,
    RAN_OUT,
    Disturbance,
    Rush,
    play,
)
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
    """What the rushes showed; `errors` says why one could not be made, one sentence each."""

    rushes: list[Rush] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def cells(self) -> list[Cell]:
        """The sales of all rushes."""
        return [cell for rush in self.rushes for cell in rush.cells]

    @property
    def canaries(self) -> dict[str, int]:
        """Each canary that broke, and the first rush in which it did."""
        return {
            cell["lock"]: cell["round"]
            for cell in reversed(self.cells)
            if cell["lock"] in CANARIES and (cell["oversold"] or (cell["lost_updates"] or 0) > 0)
        }

    @property
    def broken(self) -> list[Cell]:
        """The sales of sound strategies that broke. A sale that shows nothing is not one of
        them."""
        off = [c for c in self.cells if c["lock"] not in CANARIES and not c["as_expected"]]
        return [cell for cell in off if not cell["missing"] or cell["oversold"]]

    @property
    def why(self) -> list[str]:
        """Why the run shows nothing, one sentence each."""
        tried = Counter(one.name for rush in self.rushes for one in rush.chosen)
        seen = {name for rush in self.rushes for name in rush.seen}
        idle = [name for name, times in tried.items() if times >= TRIES and name not in seen]
        slow = {c["lock"]: c for c in self.cells if c["missing"] == RAN_OUT}
        return [
            *([] if seen else [NOTHING]),
            *(f"{name} was never seen to happen" for name in idle),
            *(f"{lock}: {RAN_OUT}" for lock in slow if lock not in CANARIES),
            *(
                f"{name}, which must break, was not seen to"
                for name in CANARIES
                if name not in self.canaries
            ),
            *self.errors,
        ]

    @property
    def exit_code(self) -> int:
        """0; 1 if a sound strategy was violated; EXIT_CODES["unknown"] if nothing is shown."""
        if self.broken:
            return 1
        return EXIT_CODES["unknown"] if self.why else 0


def run(console: Console, *, minutes: float = 2.0, seed: int | None = None) -> int:
    """Run one rush after the other until the time is over or a sound strategy is violated; write
    summary.json after each. The rushes' seeds are drawn by `seed`.

    Returns what `Found.exit_code` says. Raises StackError for a server that is not the run's own,
    and EmbeddedError when a part does not start.
    """
    refuse_external_servers()
    seed = randbits(32) if seed is None else seed
    found = Found()
    with (
        Output(console) as out,
        Testbed(log=out.log, progress=out.progress, threads=THREADS) as testbed,
    ):
        console.print(f"chaos for {minutes:g} minutes, seed {seed}")
        summary: Summary = {**out.summary(testbed, []), "seed": seed, "minutes": minutes}
        try:
            _rushes(testbed, minutes, Random(seed), found, summary, out)
        finally:
            if found.broken:
                write(out.path / "history.jsonl", testbed.events())
            if found.rushes:
                out.finish()
    for cell in found.broken:
        console.print(f"{cell['lock']}: {cell['verdict']} {cell['violations']}", style="bold red")
        console.print("\n".join(cell["story"]))
    canaries = ", ".join(f"{lock} in rush {number}" for lock, number in found.canaries.items())
    console.print(f"canaries that broke: {canaries or 'none'}")
    for why in found.why:
        console.print(f"shows nothing: {why}", style="yellow")
    console.print(
        f"{len(found.rushes)} rushes, {sum(cell['orders'] for cell in found.cells)} orders, "
        f"{sum(len(rush.chosen) for rush in found.rushes)} disturbances, "
        f"{sum(len(rush.seen) for rush in found.rushes)} seen to happen; "
        f"{len(found.broken)} violations; seed {seed}",
        style="bold",
    )
    out.print_files("summary.json")
    return found.exit_code


def _rushes(
    testbed: Testbed, minutes: float, chance: Random, found: Found, summary: Summary, out: Output
) -> None:
    deck = _deck(chance)
    locks = {*UNBROKEN, *CANARIES}
    strategies = [one for one in testbed.shop().strategies() if one["name"] in locks]
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end and not found.broken:
        number = len(found.rushes) + 1
        left = max(0, end - time.monotonic()) / 60
        out.progress(f"rush {number}, {left:.1f} minutes left")
        dealt = {one.name: one for one in islice(deck, chance.randint(1, MOST_AT_ONCE))}.values()
        holds = HOLDS[0 if any(one.takes_the_lock for one in dealt) else 1]
        rush = Rush(number, chance.getrandbits(32), [*dealt], chance.choice(holds))
        found.rushes.append(rush)
        try:
            play(testbed, rush, strategies)
        except Exception as error:
            testbed.log.write(traceback.format_exc().encode())
            rush.errors.append(f"{type(error).__name__}: {error}")
            found.errors.append(f"rush {number} broke: {rush.errors[-1]}")
        summary["rushes"] = [one.as_summary() for one in found.rushes]
        summary["runs"], summary["canaries"] = found.cells, found.canaries
        report.write_summary(out.path, summary)
        if rush.errors:
            testbed.repair()


def _deck(chance: Random) -> Iterator[Disturbance]:
    """Endlessly: every disturbance, each time in a new random order."""
    while True:
        yield from chance.sample(DISTURBANCES, len(DISTURBANCES))
