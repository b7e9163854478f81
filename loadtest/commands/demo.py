"""The contrast: the same rush without a lock and with one."""

from typing import Any

from rich.console import Console

from loadtest.commands.output import output
from loadtest.commands.rushes import CONTRAST, Setting, rush_each
from loadtest.report import html as html_report
from loadtest.report import tables as report

#: What the words of the table mean, and what to do next.
NEXT = """
oversold: orders beyond the stock; lost updates: decrements that another write erased
next: open report.html in a browser; make serve for a page with a Start button
"""


def run(console: Console, **given: Any) -> int:
    """Run the rush under each lock, print the table, write the results; `given` are fields of
    Setting.

    Returns 0 if every verdict was the expected one, else 1. Raises StackError, with what to do, for
    an unknown lock or when a part does not start.
    """
    setting = Setting(**given)
    extras = not set(setting.locks) <= set(CONTRAST)
    with output(console) as out:
        summary, events = rush_each(setting, out, extras=extras, shown=True)
        (out.folder.path / "demo.md").write_text(report.markdown(summary, report.DEMO))
        out.write(summary, events, title="the rush")
    console.print()
    runs = summary["runs"]
    table = report.sheet(runs, report.DEMO).table()
    return out.conclude(runs, table, report.reasons(runs), NEXT, html_report.NAME)
