"""python -m loadtest faults: every fault, every strategy, each held against what is expected."""

from __future__ import annotations

import json
import os
import random
import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from loadtest.commands import demo
from loadtest.commands.demo import Progress, Setting
from loadtest.expected import EXPECTED
from loadtest.faults import FAULTS, fault_report
from loadtest.faults.runner import Cell, play
from loadtest.faults.testbed import RIVALS, Stage
from loadtest.judge import history
from loadtest.judge.history import read
from loadtest.report import html as html_report
from loadtest.stack.results import RESULTS, now, result_folder
from loadtest.stack.stack import StackError
from servers import embedded

#: Threads of a node: of every strategy a few buyers wait at the same time.
THREADS = 160
#: What would lead to servers that are not the run's own.
EXTERNAL = ("DATABASE_URL", "REDIS_URL", "REDIS_LOCKS_URL", "REDIS_SENTINELS", "REDLOCK_URLS")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What to make: faults and locks by name, empty for all; a seed shuffles the faults."""

    faults: Sequence[str] = ()
    locks: Sequence[str] = ()
    seed: int | None = None


def run(chosen: Chosen, console: Console, *, verbose: bool = False) -> int:
    """Make them all, print the matrix, keep the results. 0 if every cell came as expected.

    Raises StackError, with what to do, for an unknown name, with a server that is not the run's
    own, or when a part does not start.
    """
    names = order(chosen)
    refuse_others_servers()
    started = now()
    with ExitStack() as everything:
        progress = everything.enter_context(Progress(console, verbose=verbose))
        folder = everything.enter_context(result_folder(started))
        stage = everything.enter_context(Stage(log=folder.log, progress=progress, threads=THREADS))
        strategies = _strategies(stage, chosen)
        names = [name for name in names if any(name in EXPECTED[one["name"]] for one in strategies)]
        if not names:
            raise StackError("none of these faults concerns any of these locks: choose others")
        cells: list[Cell] = []
        for number, name in enumerate(names, 1):
            progress(f"{number}/{len(names)}  {name}: {FAULTS[name].title}")
            began = time.monotonic()
            column = play(stage, FAULTS[name](), strategies, secrets.token_hex(4))
            cells += column
            console.print(
                fault_report.line(name, column, time.monotonic() - began), highlight=False
            )
        summary = {
            "started": started.isoformat(timespec="seconds"),
            "seed": chosen.seed,
            **demo.summary_of(stage, Setting(nodes=2, workers=1)),
            "threads": THREADS,
            "runs": cells,
        }
        (folder.path / "faults.json").write_text(json.dumps(summary, indent=1) + "\n")
        (folder.path / "faults.md").write_text(fault_report.markdown(summary))
        stage.history.close()
        events = read(stage.files())
        history.write(folder.path / "history.jsonl", events)
        made = {name: FAULTS[name].title for name in names}
        html_report.write(folder.path, summary, events, title="every fault", faults=made)
        progress("stopping")
        kept = folder.finish()
    console.print()
    console.print(fault_report.table(cells))
    console.print(fault_report.numbers(cells), highlight=False, style="dim")
    off = [cell for cell in cells if not cell["as_expected"]]
    for cell in off:
        console.print(fault_report.complaint(cell), style="red", highlight=False)
    console.print(f"\n{len(cells)} cells, {len(off)} off their expected verdict", style="bold")
    for name in ("faults.md", html_report.NAME):
        console.print(f"{kept.relative_to(RESULTS.parent)}/{name}", highlight=False)
    return 1 if off else 0


def refuse_others_servers() -> None:
    """Faults are made on servers that the run itself started. Raises StackError."""
    embedded.read_env()
    if named := [name for name in EXTERNAL if os.environ.get(name)]:
        raise StackError(
            f"{' and '.join(named)} is set, and faults are made on servers of the run's own only: "
            "unset it"
        )


def order(chosen: Chosen) -> list[str]:
    """The faults that were chosen, in the order in which they are made. Raises StackError."""
    if unknown := [name for name in chosen.faults if name not in FAULTS]:
        raise StackError(f"unknown fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    names = [name for name in FAULTS if name in (chosen.faults or FAULTS)]
    if chosen.seed is not None:
        random.Random(chosen.seed).shuffle(names)
    return names


def _strategies(stage: Stage, chosen: Chosen) -> list[dict[str, Any]]:
    known = {one["name"]: one for one in stage.shop(RIVALS).strategies()}
    if unknown := [lock for lock in chosen.locks if lock not in known]:
        raise StackError(f"unknown lock: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[lock] for lock in chosen.locks or known]
