"""Every fault for every strategy that it concerns, compared with the expected verdict."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from loadtest.commands.run import output, require_known
from loadtest.expected import EXPECTED
from loadtest.faults import FAULTS, fault_report
from loadtest.faults.runner import play
from loadtest.faults.testbed import RIVALS, Testbed
from loadtest.judge.run import Cell, Summary
from loadtest.report import html as html_report
from loadtest.stack.stack import StackError
from servers import embedded

#: Threads of a node: a few buyers of every strategy wait at the same time.
THREADS = 160
#: Variables that lead to servers which the run did not start.
EXTERNAL = ("DATABASE_URL", "REDIS_URL", "REDIS_LOCKS_URL", "REDIS_SENTINELS", "REDLOCK_URLS")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which faults to make for which locks, by name; empty for all. A seed shuffles the faults."""

    faults: Sequence[str] = ()
    locks: Sequence[str] = ()
    seed: int | None = None


def run(chosen: Chosen, console: Console, *, verbose: bool = False) -> int:
    """Make the faults, print the matrix, write the results.

    Returns 0 if every cell was as expected, else 1. Raises StackError, with what to do, for an
    unknown name, for a server that is not the run's own, or when a part does not start.
    """
    names = order(chosen)
    refuse_external_servers()
    with (
        output(console, verbose=verbose) as out,
        Testbed(log=out.folder.log, progress=out.progress, threads=THREADS) as testbed,
    ):
        strategies = _strategies(testbed, chosen)
        names = [name for name in names if any(name in EXPECTED[one["name"]] for one in strategies)]
        if not names:
            raise StackError("none of these faults concerns any of these locks: choose others")
        cells: list[Cell] = []
        for number, name in enumerate(names, 1):
            out.progress(f"{number}/{len(names)}  {name}: {FAULTS[name].title}")
            began = time.monotonic()
            found = play(testbed, FAULTS[name](), strategies, secrets.token_hex(4))
            cells += found
            line = fault_report.line(name, found, time.monotonic() - began)
            console.print(line, highlight=False)
        summary: Summary = {**out.summary(testbed, cells), "seed": chosen.seed}
        (out.folder.path / "faults.md").write_text(fault_report.markdown(summary, cells))
        made = {name: FAULTS[name].title for name in names}
        out.write(summary, testbed.events(), title="every fault", faults=made)
        out.finish()
    console.print()
    for shown in fault_report.tables(cells, console.width):
        console.print(shown)
    console.print(fault_report.numbers(cells), highlight=False, style="dim")
    off = [cell for cell in cells if not cell["as_expected"]]
    for cell in off:
        console.print(fault_report.complaint(cell), style="red", highlight=False)
    console.print(f"\n{len(cells)} cells, {len(off)} off their expected verdict", style="bold")
    out.print_files("summary.json", "faults.md", html_report.NAME)
    return 1 if off else 0


def refuse_external_servers() -> None:
    """Raise StackError if a variable leads to servers that the run did not start itself."""
    embedded.read_env()
    if named := [name for name in EXTERNAL if os.environ.get(name)]:
        raise StackError(
            f"{' and '.join(named)} is set, and faults are made only on servers that the run "
            "started: unset it"
        )


def order(chosen: Chosen) -> list[str]:
    """The chosen faults in the order in which they are made. Raises StackError."""
    require_known(chosen.faults, list(FAULTS), "fault")
    names = [name for name in FAULTS if name in (chosen.faults or FAULTS)]
    if chosen.seed is not None:
        random.Random(chosen.seed).shuffle(names)
    return names


def _strategies(testbed: Testbed, chosen: Chosen) -> list[dict[str, Any]]:
    known = {str(one["name"]): one for one in testbed.shop(RIVALS).strategies()}
    require_known(chosen.locks, list(known), "lock")
    return [known[lock] for lock in chosen.locks or known]
