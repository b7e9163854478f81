"""The table of a run, for the terminal and for the documents, and its summary.json."""

import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from loadtest.judge.run import Machine, Run, Summary, no_answer

#: The text of a column for a run; `runs` are all runs of the table.
Figure = Callable[[Run, Sequence[Run]], str]

#: The lock that durations are compared with.
YARDSTICK = "row-lock"
#: The rush against a single process.
ONE_PROCESS = "rush-one-process"


def _relative(run: Run, runs: Sequence[Run]) -> str:
    yardstick = [one["duration_s"] for one in runs if one["lock"] == YARDSTICK]
    return f"{run['duration_s'] / median(yardstick):.2f}" if yardstick else "-"


def _known(figure: int | None) -> str:
    """A figure that not every shop shows."""
    return "-" if figure is None else str(figure)


FIGURES: dict[str, Figure] = {
    "orders": lambda run, _: str(run["orders"]),
    "stock left": lambda run, _: _known(run["stock_left"]),
    "oversold": lambda run, _: str(run["oversold"]),
    "lost updates": lambda run, _: _known(run["lost_updates"]),
    "no answer": lambda run, _: str(no_answer(run)),
    "p50 ms": lambda run, _: f"{run['buy_ms']['p50']:.0f}",
    "p95 ms": lambda run, _: f"{run['buy_ms']['p95']:.0f}",
    "seconds": lambda run, _: f"{run['duration_s']:.2f}",
    "time / row-lock": _relative,
}
DEMO = ("orders", "stock left", "oversold", "lost updates", "no answer", "p50 ms", "seconds")
MATRIX = (
    *("orders", "stock left", "lost updates", "no answer"),
    *("p50 ms", "p95 ms", "seconds", "time / row-lock"),
)
#: Left out of a table in which every buyer has an answer.
IF_ANY = "no answer"


def verdict_cell(run: Run) -> str:
    """The verdict, with a sign for those who see no colour."""
    colour = {"exact": "green", "oversold": "red"}.get(run["verdict"], "yellow")
    sign = "✓" if run["verdict"] == "exact" else "✗"
    surprise = "" if run["as_expected"] else f" (expected {run['expected']})"
    return f"[bold {colour}]{sign} {run['verdict'].upper()}[/]{surprise}"


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table for the terminal and for the documents: a line for each run, with its verdict.

    headings  of the figures, which follow the name and the verdict
    rows      a run and its figures
    """

    headings: Sequence[str]
    rows: Sequence[tuple[Run, Sequence[str]]]

    def table(self) -> Table:
        """For the terminal: each word of a heading is on a line of its own, so 80 columns do."""
        shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        name, verdict, *headings = self.heads
        shown.add_column(name, no_wrap=True)
        shown.add_column(verdict)
        for heading in headings:
            shown.add_column(re.sub(" (?!/)", "\n", heading), justify="right", no_wrap=True)
        for run, texts in self.rows:
            shown.add_row(named(run), verdict_cell(run), *texts)
        return shown

    def markdown(self, below: str) -> str:
        """As Markdown, with a paragraph below it."""
        rows = [[named(run, "`"), bold(run["verdict"]), *texts] for run, texts in self.rows]
        return markdown_table(self.heads, rows, below)

    @property
    def heads(self) -> list[str]:
        """The headings of all columns."""
        of_target = any("target" in run for run, _ in self.rows)
        return ["target" if of_target else "lock", "verdict", *self.headings]


def sheet(runs: Sequence[Run], columns: Sequence[str]) -> Sheet:
    """These columns of rushes."""
    shown = [name for name in columns if name != IF_ANY or any(no_answer(run) for run in runs)]
    return Sheet(shown, [(run, figures(run, runs, shown)) for run in runs])


def markdown(summary: Summary, columns: Sequence[str]) -> str:
    """These columns as Markdown, with where and when it was measured."""
    return sheet(summary["runs"], columns).markdown(where(summary))


def markdown_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], below: str, *, left: int = 2
) -> str:
    """A table with a paragraph below it; the first `left` columns are text, the others figures."""
    sides = "---|" * left + "--:|" * (len(headings) - left)
    lines = [f"| {' | '.join(row)} |" for row in (headings, *rows)]
    return "\n".join([lines[0], f"|{sides}", *lines[1:], "", below]) + "\n"


def bold(verdict: str) -> str:
    return f"**{verdict.upper()}**"


def reasons(runs: Sequence[Run]) -> list[str]:
    """For each run that is not as expected: a line with its lock for why nothing is concluded, and
    one for each finding."""
    return [line for run in runs if not run["as_expected"] for line in sentences(run)]


def sentences(run: Run) -> list[str]:
    """Why nothing is concluded of a run, if so, and what was found in it."""
    said = dict.fromkeys([run.get("why", ""), *run.get("findings", ())])
    return [f"{named(run)}: {what}" for what in said if what]


def print_reasons(console: Console, lines: Sequence[str]) -> None:
    """Print lines as they are: what is in them may be a stranger's, and look like markup."""
    for line in lines:
        console.print(line, style="yellow", highlight=False, soft_wrap=True, markup=False)


def machine(parts: Sequence[Mapping[str, Any]]) -> Machine:
    """The machine and its servers; `parts` as /readyz has them, empty where that is not known."""
    said = {part["name"]: str(part["detail"]) for part in parts}
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "postgres": said.get("PostgreSQL", "").removeprefix("version ").partition(",")[0],
        "redis": said.get("Redis (locks)", "").partition(",")[0],
    }


def write_summary(folder: Path, summary: Summary) -> None:
    """Write summary.json into a folder atomically: whole, or not at all. Raises OSError
    when the disk is full."""
    fresh = folder / f".summary-{os.getpid()}.json"
    try:
        fresh.write_text(json.dumps(summary, indent=1) + "\n")
        fresh.replace(folder / "summary.json")
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def named(run: Run, code: str = "") -> str:
    """The name of a run's strategy, and whether it ran in one process."""
    single = " (one process)" if run["fault"] == ONE_PROCESS else ""
    return f"{code}{run['lock']}{code}{single}"


def figures(run: Run, runs: Sequence[Run], columns: Sequence[str]) -> list[str]:
    """The texts of the columns for a run; empty for one that was not run."""
    if run["verdict"] == "not_run":
        return [""] * len(columns)
    return [FIGURES[name](run, runs) for name in columns]


def where(summary: Summary) -> str:
    """One sentence: what was run, where and when."""
    machine, first = summary["machine"], summary["runs"][0]
    if "target" in summary:
        return (
            f"{first['buyers']} buyers, {first['initial_stock']} units; "
            f"{summary['target']['file']} at {summary['target']['host']}; "
            f"buyers on {machine['cpus']} CPUs, Python {machine['python']}; "
            f"{summary['started'][:10]}."
        )
    return (
        f"{first['buyers']} buyers, {first['initial_stock']} units, hold {first['hold_ms']} ms; "
        f"{summary['nodes']} nodes of {summary['workers']} workers and {summary['threads']} "
        f"threads; {machine_and_date(summary)}."
    )


def machine_and_date(summary: Summary) -> str:
    """On what it was run, and when."""
    machine = summary["machine"]
    return (
        f"{machine['cpus']} CPUs, Python {machine['python']}, PostgreSQL {machine['postgres']}, "
        f"{machine['redis']}; {summary['started'][:10]}"
    )
