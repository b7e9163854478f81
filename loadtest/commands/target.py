"""The rush against a shop of your own, which a file says how to buy from."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from loadtest.commands.output import Output, output
from loadtest.judge import history
from loadtest.judge.run import Machine, Run, Rushed, Summary
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.rush.locust_process import BUYERS, LocustProcess, NotSold
from loadtest.target.hosts import require_permission
from loadtest.target.loading import load
from servers.loopback import ask_loopback_directly

#: The stock is divided by each of these in turn: many units are many chances for a race, few units
#: have more buyers for each.
CONTENTION = (1, 2, 5)
NEXT = """
oversold: orders beyond the stock; lost updates: decrements that another write erased
next: docs/your-shop.md says where to look and which repair fits"""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is rushed, and how.

    allowed   the name of another machine that may be rushed
    deadline  seconds until buyers give up
    repeat    rushes at most: the first one that is not exact ends them
    expect    the verdict that is no failure
    """

    file: Path
    host: str
    allowed: str = ""
    buyers: int = 200
    stock: int = 100
    deadline: float = 60.0
    repeat: int = 10
    expect: str = "exact"


def run(chosen: Chosen, console: Console, *, verbose: bool = False) -> int:
    """Rush it until something is found, `repeat` times at most; print the table, what was found and
    what was judged; write the results.

    Returns 0 if the verdict was the expected one, else 1. Raises ShopUnreachable or StackError,
    with what to do, where the target is wrong or its shop does not answer; then no results are
    written.
    """
    ask_loopback_directly()
    file = chosen.file.absolute()
    name = load(file, chosen.host).name
    if warning := require_permission(chosen.host, chosen.allowed, buyers=chosen.buyers):
        console.print(warning, style="yellow", highlight=False, soft_wrap=True)
    with output(console, verbose=verbose) as out, LocustProcess(out.folder.log) as crowd:
        runs: list[Run] = []
        try:
            while len(runs) < chosen.repeat and (not runs or runs[-1]["verdict"] == "exact"):
                runs.append(_rush(crowd, chosen, name, len(runs) + 1, out))
        except NotSold:
            Path(out.folder.log.name).unlink()
            raise
        # Of the shop's own machine and servers nothing is known.
        here = {"cpus": os.cpu_count(), "python": platform.python_version()}
        scope = {title: list(cast(Any, runs[0])[title]) for title in ("judged", "not_judged")}
        summary: Summary = {
            "started": out.started.isoformat(timespec="seconds"),
            "machine": cast(Machine, {**here, "postgres": "", "redis": ""}),
            "nodes": 0,
            "workers": 0,
            "threads": 0,
            "target": cast(Rushed, {"file": file.name, "host": chosen.host, **scope}),
            "runs": runs,
        }
        events = history.read([out.folder.path / BUYERS])
        (out.folder.path / BUYERS).unlink()
        (out.folder.path / "target.md").write_text(report.markdown(summary, report.DEMO))
        out.write(summary, events, title=f"the rush against {name}")
        out.finish()
    console.print(report.fitting(runs, report.DEMO, console))
    report.print_reasons(console, report.sentences(runs[-1]))
    console.print(f"\n{found(runs)}\n", style="bold", highlight=False, soft_wrap=True)
    for title, sentences in scope.items():
        for what in sentences:
            words = title.replace("_", " ")
            console.print(f"{words}: {what}", highlight=False, soft_wrap=True, markup=False)
    console.print()
    out.print_files("summary.json", html_report.NAME)
    console.print(NEXT, style="dim", highlight=False)
    return 0 if runs[-1]["as_expected"] else 1


def found(runs: Sequence[Run]) -> str:
    """The result of these rushes: of a shop that was exact each time, how little that is."""
    if runs[-1]["verdict"] != "exact":
        return f"found in rush {len(runs)}: {runs[-1]['verdict'].upper()}"
    return (
        f"found in none of {len(runs)} {'rush' if len(runs) == 1 else 'rushes'}: that is no proof. "
        "Few processes and a short time between check and write hide a race; the test in "
        "docs/your-shop.md, section 6, decides"
    )


def _rush(crowd: LocustProcess, chosen: Chosen, name: str, number: int, out: Output) -> Run:
    """One rush, with the stock that its number has. Of a shop the same is expected as of a sound
    strategy, unless --expect says otherwise. Raises StackError."""
    stock = max(1, chosen.stock // CONTENTION[(number - 1) % len(CONTENTION)])
    out.progress(f"{number}/{chosen.repeat}  {chosen.buyers} buyers, {stock} units: {name}")
    found = crowd.rush(
        [chosen.host],
        target=str(chosen.file.absolute()),
        i_may_load=chosen.allowed,
        buyers=chosen.buyers,
        stock=stock,
        deadline=chosen.deadline,
        history=str(out.folder.path / BUYERS),
    )
    own = {"target": chosen.file.name, "expected": chosen.expect, "round": number}
    run = cast(Run, {**found, **own, "as_expected": found["verdict"] == chosen.expect})
    result = "nothing found" if run["verdict"] == "exact" else report.verdict_cell(run)
    line = f"{chosen.buyers} buyers for {stock} units: {result}"
    out.console.print(line, highlight=False)
    return run
