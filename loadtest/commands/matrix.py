"""Every strategy under the rush, each held against its expected verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from rich.console import Console

from loadtest.commands import demo
from loadtest.commands.demo import Progress, Setting
from loadtest.expected import EXPECTED
from loadtest.judge import history
from loadtest.judge.history import Event
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.report.tables import ONE_PROCESS
from loadtest.rush.locust_process import Buyers
from loadtest.stack.results import RESULTS, ResultFolder, now, result_folder
from loadtest.stack.stack import StackError


def run(setting: Setting, console: Console) -> int:
    """Run them all, print one table, keep the results. 0 if every verdict was the expected one.

    A part that is missing (ZooKeeper) is said as `not_run`. Raises StackError.
    """
    started = now()
    with ExitStack() as everything:
        progress = everything.enter_context(Progress(console, verbose=setting.verbose))
        folder = everything.enter_context(result_folder(started))
        runs, events, summary = _two_nodes(setting, folder, progress)
        if any(ONE_PROCESS in run["faults"] for run in runs):
            more_runs, more_events = _one_process(setting, folder, progress)
            runs += more_runs
            events += more_events
        for one in runs:
            del one["faults"]
        summary = {"started": started.isoformat(timespec="seconds"), **summary, "runs": runs}
        report.write_summary(folder.path / "summary.json", summary)
        (folder.path / "matrix.md").write_text(
            report.markdown({**summary, "runs": report.typical(runs)}, report.MATRIX)
        )
        history.write(folder.path / "history.jsonl", events)
        html_report.write(folder.path, summary, events, title="every strategy under the rush")
        kept = folder.finish()
    console.print(report.table(report.typical(runs), report.MATRIX))
    off = [one for one in runs if not one["as_expected"]]
    console.print(f"\n{len(runs)} runs, {len(off)} verdicts off", style="bold")
    for name in ("summary.json", html_report.NAME):
        console.print(f"{kept.relative_to(RESULTS.parent)}/{name}", highlight=False)
    return 1 if off else 0


def _two_nodes(
    setting: Setting, folder: ResultFolder, progress: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[Event], dict[str, Any]]:
    with (
        demo.stack_for(setting, folder, progress, extras=True, record=True) as stack,
        Buyers(stack, log=folder.log, stay=True) as buyers,
    ):
        known = {one["name"]: one for one in stack.shop().strategies()}
        if unknown := [lock for lock in setting.locks if lock not in known]:
            raise StackError(f"unknown lock: {', '.join(unknown)}; there are {', '.join(known)}")
        chosen = [known[lock] for lock in setting.locks or known]
        runs: list[dict[str, Any]] = []
        for one in chosen * setting.repeat:  # in rounds, so that all meet the same machine
            progress(f"{len(runs) + 1}/{len(chosen) * setting.repeat}  {one['name']}")
            runs.append(_rush(buyers, setting, one, "rush"))
        buyers.save(folder.path, "matrix")
        return runs, stack.events(), demo.summary_of(stack, setting)


def _one_process(
    setting: Setting, folder: ResultFolder, progress: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[Event]]:
    """The strategies that expect another verdict of a single process."""
    alone = replace(setting, nodes=1, workers=1)
    with (
        demo.stack_for(alone, folder, progress, extras=False, record=True) as stack,
        Buyers(stack, log=folder.log, stay=True) as buyers,
    ):
        runs = [
            _rush(buyers, alone, one, ONE_PROCESS)
            for one in stack.shop().strategies()
            if ONE_PROCESS in EXPECTED[one["name"]]
            and one["name"] in (setting.locks or one["name"])
        ]
        return runs, stack.events()


def _rush(
    buyers: Buyers, setting: Setting, strategy: Mapping[str, Any], fault: str
) -> dict[str, Any]:
    expected = EXPECTED[strategy["name"]]
    if not strategy["available"]:
        return {**_not_run(strategy, setting), "faults": []}
    run = demo.rush(buyers, setting, strategy["name"], expected[fault])
    return {**run, "fault": fault, "faults": list(expected)}


def _not_run(strategy: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """The run of a strategy whose server is missing: said, not passed over."""
    return {
        "lock": strategy["name"],
        "fault": "rush",
        "buyers": setting.buyers,
        "initial_stock": setting.stock,
        "hold_ms": setting.hold_ms,
        "verdict": "not_run",
        "expected": EXPECTED[strategy["name"]]["rush"],
        "as_expected": not os.environ.get("CI"),  # there, nothing may be missing
        "why": f"{strategy['needs']} is not set, and no such server is installed",
    }
