"""Every strategy under the rush, each compared with its expected verdict."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from loadtest.commands.output import output
from loadtest.commands.rushes import Setting, rush_each
from loadtest.expected import EXPECTED
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.report.tables import ONE_PROCESS

LEGEND = """
lost updates: decrements that another write erased
time / row-lock: seconds of the rush, divided by those of row-lock (SELECT FOR UPDATE)"""


def run(console: Console, *, locks: Sequence[str] = (), **given: Any) -> int:
    """Run them all, and in a single process those of which another verdict is expected there. Print
    one table, write the results; `given` are fields of Setting.

    Returns 0 if every verdict was the expected one, else 1. Raises StackError.
    """
    setting = Setting(locks=locks, **given)
    with output(console) as out:
        summary, events = rush_each(setting, out, extras=True)
        runs = list(summary["runs"])
        ran = dict.fromkeys(one["lock"] for one in runs if one["verdict"] != "not_run")
        if alone := [lock for lock in ran if ONE_PROCESS in EXPECTED[lock]]:
            single = replace(setting, locks=alone, nodes=1, workers=1)
            more, more_events = rush_each(single, out, extras=False, fault=ONE_PROCESS)
            runs += more["runs"]
            events += more_events
        summary["runs"] = runs
        (out.folder.path / "matrix.md").write_text(report.markdown(summary, report.MATRIX))
        out.write(summary, events, title="every strategy under the rush")
    off = sum(not one["as_expected"] for one in runs)
    legend = f"{LEGEND}\n\n[bold]{len(runs)} runs, {off} verdicts off[/]"
    table = report.sheet(runs, report.MATRIX).table()
    return out.conclude(runs, table, report.reasons(runs), legend, html_report.NAME)
