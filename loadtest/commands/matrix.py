"""Every strategy under the rush, each compared with its expected verdict."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from loadtest.commands.judged import judge_closed
from loadtest.commands.output import Output, output, require_known
from loadtest.commands.rushes import Setting, rush, stack_and_buyers
from loadtest.expected import EXPECTED
from loadtest.judge.history import Event
from loadtest.judge.run import Run, Summary
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.report.tables import ONE_PROCESS
from loadtest.stack.client import Strategy

LEGEND = """
lost updates: decrements that another write erased
time / row-lock: seconds of the rush, divided by those of row-lock (SELECT FOR UPDATE)"""


def run(setting: Setting, console: Console, *, verbose: bool = False) -> int:
    """Run them all, print one table, write the results.

    A strategy whose server is not installed (ZooKeeper) is `not_run`. Returns 0 if every verdict
    was the expected one, else 1. Raises StackError.
    """
    with output(console, verbose=verbose) as out:
        summary, events = _two_nodes(setting, out)
        runs = list(summary["runs"])
        if locks := _of_one_process(runs):
            more_runs, more_events = _one_process(setting, locks, out)
            runs += more_runs
            events += more_events
        summary["runs"] = runs
        typical: Summary = {**summary, "runs": report.typical(runs)}
        (out.folder.path / "matrix.md").write_text(report.markdown(typical, report.MATRIX))
        out.write(summary, events, title="every strategy under the rush")
        out.finish()
    off = sum(not one["as_expected"] for one in runs)
    legend = f"{LEGEND}\n\n[bold]{len(runs)} runs, {off} verdicts off[/]"
    table = report.fitting(report.typical(runs), report.MATRIX, console)
    return out.conclude(runs, table, report.reasons(runs), legend, html_report.NAME)


def _two_nodes(setting: Setting, out: Output) -> tuple[Summary, list[Event]]:
    with stack_and_buyers(setting, out, extras=True, record=True) as (stack, buyers):
        known = {str(one["name"]): one for one in stack.shop().strategies()}
        require_known(setting.locks, list(known), "lock")
        chosen = [known[lock] for lock in setting.locks or known]
        runs: list[Run] = []
        for one in chosen * setting.repeat:  # in rounds, so that all meet the same machine
            out.progress(f"{len(runs) + 1}/{len(chosen) * setting.repeat}  {one['name']}")
            runs.append(
                rush(stack, buyers, setting, one["name"])
                if one["available"]
                else _not_run(one, setting)
            )
        judge_closed(stack.shop(), runs)
        return out.summary(stack, runs), stack.events()


def _of_one_process(runs: Sequence[Run]) -> list[str]:
    """The locks of these runs of which another verdict is expected in a single process."""
    ran = [one["lock"] for one in runs if one["verdict"] != "not_run"]
    return [lock for lock in dict.fromkeys(ran) if ONE_PROCESS in EXPECTED[lock]]


def _one_process(
    setting: Setting, locks: Sequence[str], out: Output
) -> tuple[list[Run], list[Event]]:
    single = replace(setting, nodes=1, workers=1)
    with stack_and_buyers(single, out, extras=False, record=True) as (stack, buyers):
        return [rush(stack, buyers, single, lock, ONE_PROCESS) for lock in locks], stack.events()


def _not_run(strategy: Strategy, setting: Setting) -> Run:
    """The run of a strategy whose server is not installed."""
    return {
        "lock": strategy["name"],
        "fault": "rush",
        "buyers": setting.buyers,
        "initial_stock": setting.stock,
        "hold_ms": setting.hold_ms,
        "verdict": "not_run",
        "expected": EXPECTED[strategy["name"]]["rush"],
        "as_expected": not os.environ.get("CI"),  # where no server may be missing
        "why": f"{strategy['needs']} is not set, and no such server is installed",
    }
