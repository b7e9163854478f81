"""Every fault for every strategy that it concerns, compared with the expected verdict."""

import os
import time
from collections.abc import Iterator, Sequence

from rich.console import Console

from loadtest.commands.output import Output
from loadtest.faults import FAULTS, fault_report
from loadtest.faults.runner import concerned, play, unknown
from loadtest.faults.testbed import RIVALS, Testbed
from loadtest.judge.run import Cell
from loadtest.judge.verdict import EXIT_CODES
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.stack.client import Strategy
from loadtest.stack.stack import SERVERS, StackError
from servers import embedded

#: Threads of a node: a few buyers of every strategy wait at the same time.
THREADS = 160
#: After this many faults in a row whose servers did not come back, the others are not made.
BROKEN_IN_A_ROW = 2
#: So many cells and no more are also printed in figures.
FEW = 16
#: Variables that lead to servers which the run did not start.
EXTERNAL = ("DATABASE_URL", "REDIS_URL", "REDIS_LOCKS_URL", "REDIS_SENTINELS", "REDLOCK_URLS")


def run(
    console: Console,
    *,
    faults: Sequence[str] = (),
    locks: Sequence[str] = (),
    server: str = SERVERS[0],
) -> int:
    """Make these faults for these locks, by name, all where none is named; `server` as in Stack.
    Print the matrix, write the results: summary.json after every fault, the rest at the end, also
    when the run ends early.

    Returns what `exit_code` says. Raises StackError, with what to do, where no fault concerns any
    lock or a server is not the run's own, and EmbeddedError when a part does not start.
    """
    names = [name for name in FAULTS if name in (faults or FAULTS)]
    refuse_external_servers()
    with (
        Output(console) as out,
        Testbed(log=out.log, progress=out.progress, threads=THREADS, server=server) as testbed,
    ):
        known = {one["name"]: one for one in testbed.shop(RIVALS).strategies()}
        strategies = [known[lock] for lock in locks or known]
        names = [name for name in names if concerned(name, strategies)]
        if not names:
            raise StackError("none of these faults concerns any of these locks: choose others")
        cells: list[Cell] = []
        summary = out.summary(testbed, cells)
        try:
            for found in _make_all(names, strategies, testbed, out):
                cells += found
                report.write_summary(out.path, summary)
        finally:
            if cells:
                made = {name: FAULTS[name].title for name in fault_report.made(cells)}
                table = fault_report.markdown(summary, cells)
                events = testbed.events()
                out.write(summary, events, "faults.md", table, title="every fault", faults=made)
    console.print()
    for shown in fault_report.tables(cells, console.width):
        console.print(shown)
    console.print(fault_report.numbers(cells), style="dim")
    if len(cells) <= FEW:
        console.print("", *fault_report.figures(cells), sep="\n")
    off = [cell for cell in cells if not cell["as_expected"]]
    for cell in off:
        console.print(fault_report.complaint(cell), style="red", markup=False)
    total = fault_report.count(len(cells), "cell")
    console.print(f"\n{total}, {len(off)} off their expected verdict", style="bold")
    out.print_files("summary.json", "faults.md", html_report.NAME)
    return exit_code(cells)


def exit_code(cells: Sequence[Cell]) -> int:
    """0: all as expected. 1: a verdict is off its expected one, or something else was wrong.
    EXIT_CODES["unknown"]: nothing is off, but some cells show nothing. (2 is for a run that could
    not be made at all.)"""
    off = [cell for cell in cells if not cell["as_expected"]]
    if any(cell["verdict"] != "unknown" or cell["wrong"] for cell in off):
        return 1
    return EXIT_CODES["unknown"] if off else 0


def _make_all(
    names: Sequence[str], strategies: Sequence[Strategy], testbed: Testbed, out: Output
) -> Iterator[list[Cell]]:
    """Make one fault after the other, and return its cells. After BROKEN_IN_A_ROW faults whose
    servers did not come back, the others are not made."""
    broken = 0
    for number, name in enumerate(names, 1):
        out.progress(f"{number}/{len(names)}  {name}: {FAULTS[name].title}")
        began = time.monotonic()
        try:
            if broken >= BROKEN_IN_A_ROW:
                raise StackError("the servers did not come back after the faults before this one")
            found = play(FAULTS[name](testbed), strategies)
            broken = 0
        except Exception as error:
            broken += 1
            why = f"{type(error).__name__}: {error}"
            found = unknown(name, concerned(name, strategies), why)
        yield found
        out.console.print(fault_report.line(name, found, time.monotonic() - began))


def refuse_external_servers() -> None:
    """Raise StackError if a variable leads to servers that the run did not start itself."""
    embedded.read_env()
    if named := [name for name in EXTERNAL if os.environ.get(name)]:
        raise StackError(
            f"{' and '.join(named)} is set, and faults are made only on servers that the run "
            "started: unset it"
        )
