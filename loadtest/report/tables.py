"""The table of a run, for the terminal and for Markdown files, and its summary.json."""

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.judge.finding import format_count
from loadtest.judge.run import Machine, Run, Summary, count_unanswered_buyers

#: The strategy whose duration is compared with those of the others.
REFERENCE_STRATEGY = "row-lock"
#: The `fault` of a run that is a rush against a single process of the shop.
ONE_PROCESS = "rush-one-process"
#: Figures in the table of a demo, or of a rush on another shop.
DEMO_COLUMNS = (
    "orders",
    "stock left",
    "oversold",
    "lost updates",
    "no answer",
    "p50 ms",
    "seconds",
)
#: Figures in the table of a matrix, which compares many strategies.
MATRIX_COLUMNS = (
    "orders",
    "stock left",
    "lost updates",
    "no answer",
    "p50 ms",
    "p95 ms",
    "seconds",
    "time / row-lock",
)
#: The column that is left out if every buyer has a final answer; it counts those without one.
OPTIONAL_COLUMN = "no answer"


def make_verdict_markup(run: Run) -> str:
    """Return the verdict as coloured Rich markup that begins with a check mark or a cross."""
    colour = {"exact": "green", "oversold": "red"}.get(run["verdict"], "yellow")
    sign = "✓" if run["verdict"] == "exact" else "✗"
    markup = f"[bold {colour}]{sign} {run['verdict'].upper()}[/]"
    if not run["as_expected"]:
        markup += f" (expected {run['expected']})"
    return markup


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table for the terminal and for Markdown: a row for each run, with its verdict.

    headings  the headings of the figures, which follow the strategy and the verdict
    rows      each run, and the texts of its figures
    """

    headings: Sequence[str]
    rows: Sequence[tuple[Run, Sequence[str]]]

    def table(self) -> Table:
        """Return the table for a terminal of 80 columns, so each heading has one word per line."""
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        table.add_column(self.all_headings[0], no_wrap=True)
        table.add_column(self.all_headings[1])
        for heading in self.headings:
            # A slash stays on the line of the word before it: `time /`, then `row-lock`.
            one_word_per_line = re.sub(" (?!/)", "\n", heading)
            table.add_column(one_word_per_line, justify="right", no_wrap=True)
        for run, texts in self.rows:
            table.add_row(escape(make_run_label(run)), make_verdict_markup(run), *texts)
        return table

    def markdown(self, paragraph: str) -> str:
        """Return the table as Markdown, with a paragraph below it."""
        rows = []
        for run, texts in self.rows:
            rows.append([make_run_label(run, "`"), make_bold_verdict(run["verdict"])] + list(texts))
        return markdown_table(self.all_headings, rows, paragraph)

    @property
    def all_headings(self) -> list[str]:
        """The headings of all columns: the strategy, the verdict, and the figures."""
        has_target = any("target" in run for run, _ in self.rows)
        return ["target" if has_target else "lock", "verdict"] + list(self.headings)


def make_sheet(runs: Sequence[Run], columns: Sequence[str]) -> Sheet:
    """Return the table of some rushes.

    OPTIONAL_COLUMN counts buyers without an answer. It is omitted if there are none.
    """
    has_unanswered_buyers = any(count_unanswered_buyers(run) for run in runs)
    columns = [name for name in columns if name != OPTIONAL_COLUMN or has_unanswered_buyers]
    return Sheet(columns, [(run, format_figures(run, runs, columns)) for run in runs])


def markdown(summary: Summary, columns: Sequence[str]) -> str:
    """Return the table of a summary's runs as Markdown, with their setup below it."""
    return make_sheet(summary["runs"], columns).markdown(describe_setup(summary))


def markdown_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], paragraph: str, *, left: int = 2
) -> str:
    """Return a Markdown table with a paragraph below it.

    left  the number of columns, from the first one, that are aligned to the left; the others, which
          have figures, are aligned to the right
    """
    lines = [
        f"| {' | '.join(headings)} |",
        "|" + "---|" * left + "--:|" * (len(headings) - left),
    ]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", paragraph]
    return "\n".join(lines) + "\n"


def make_bold_verdict(verdict: str) -> str:
    """Return a verdict as Markdown, in bold capital letters."""
    return f"**{verdict.upper()}**"


def explain_unexpected(runs: Sequence[Run]) -> list[str]:
    """Return the sentences of explain_run() on all runs that are not as expected."""
    sentences = []
    for run in runs:
        if not run["as_expected"]:
            sentences += explain_run(run)
    return sentences


def explain_run(run: Run) -> list[str]:
    """Return the `why` of a run, if it has one, and its findings, one sentence each."""
    texts = [run.get("why", "")] + list(run.get("findings", ()))
    without_repetitions = dict.fromkeys(texts)
    return [f"{make_run_label(run)}: {text}" for text in without_repetitions if text]


def print_without_markup(console: Console, lines: Sequence[str]) -> None:
    """Print lines as they are: the text of another shop may look like Rich's markup."""
    for line in lines:
        console.print(line, style="yellow", highlight=False, soft_wrap=True, markup=False)


def describe_machine(parts: Sequence[Mapping[str, Any]]) -> Machine:
    """Return the machine and the versions of its servers.

    parts  the servers that /readyz lists; empty if they are unknown. The `detail` of a server
           begins with its version, such as `version 18.4,` or `Valkey 9.1.2,`
    """
    versions = {
        part["name"]: str(part["detail"]).removeprefix("version ").partition(",")[0]
        for part in parts
    }
    database = ""  # empty for PostgreSQL
    for name in ("SQLite", "MariaDB", "MySQL"):
        if name in versions:
            database = f"{name} {versions[name]}"
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "postgres": versions.get("PostgreSQL", ""),
        "database": database,
        "redis": versions.get("Redis (locks)", ""),
    }


def write_summary(folder: Path, summary: Summary) -> None:
    """Write summary.json into a folder atomically. Raises OSError, as when the disk is full."""
    temporary_file = folder / f".summary-{os.getpid()}.json"
    try:
        temporary_file.write_text(json.dumps(summary, indent=1) + "\n")
        temporary_file.replace(folder / "summary.json")
    except OSError:
        temporary_file.unlink(missing_ok=True)
        raise


def make_run_label(run: Run, quote: str = "") -> str:
    """Return the name of a run's strategy, and whether the shop ran in one process.

    quote  a mark to put before and after the name, such as a backtick
    """
    label = f"{quote}{run['lock']}{quote}"
    if run["fault"] == ONE_PROCESS:
        label += " (one process)"
    return label


def format_figures(run: Run, runs: Sequence[Run], columns: Sequence[str]) -> list[str]:
    """Return the texts of the columns for a run; empty texts for a run that was not made.

    runs  all runs of the table, one of which may be the reference for durations
    """
    if run["verdict"] == "not_run":
        return [""] * len(columns)
    return [_format_figure(name, run, runs) for name in columns]


def _format_figure(column: str, run: Run, runs: Sequence[Run]) -> str:
    """Return the text of a column for a run; `runs` are all runs of the table."""
    match column:
        case "orders":
            return str(run["orders"])
        case "stock left":
            return _format_count_or_dash(run["stock_left"])
        case "oversold":
            return str(run["oversold"])
        case "lost updates":
            return _format_count_or_dash(run["lost_updates"])
        case "no answer":
            return str(count_unanswered_buyers(run))
        case "p50 ms":
            return f"{run['buy_ms']['p50']:.0f}"
        case "p95 ms":
            return f"{run['buy_ms']['p95']:.0f}"
        case "seconds":
            return f"{run['duration_s']:.2f}"
        case "time / row-lock":
            return _format_relative_duration(run, runs)
    raise ValueError(f"no table has a column {column!r}")


def _format_count_or_dash(figure: int | None) -> str:
    """Format a count; a dash if it is None, because the shop does not show its stock."""
    if figure is None:
        return "-"
    return str(figure)


def _format_relative_duration(run: Run, runs: Sequence[Run]) -> str:
    """Format the duration of a run, divided by the median duration under REFERENCE_STRATEGY.

    Return a dash if no run was made under REFERENCE_STRATEGY.
    """
    durations = [
        reference_run["duration_s"]
        for reference_run in runs
        # A run that was not made has no duration.
        if reference_run["lock"] == REFERENCE_STRATEGY and "duration_s" in reference_run
    ]
    if not durations:
        return "-"
    return f"{run['duration_s'] / median(durations):.2f}"


def describe_setup(summary: Summary) -> str:
    """Return one sentence on the size of a summary's rushes, the machine and the date."""
    machine = summary["machine"]
    first_run = summary["runs"][0]
    size = f"{first_run['buyers']} buyers, {first_run['initial_stock']} units"
    if "target" in summary:
        return (
            f"{size}; {summary['target']['file']} at {summary['target']['host']}; "
            f"buyers on {machine['cpus']} CPUs, Python {machine['python']}; "
            f"{summary['started'][:10]}."
        )
    return (
        f"{size}, hold {first_run['hold_ms']} ms; "
        f"{format_count(summary['nodes'], 'node')} of "
        f"{format_count(summary['workers'], 'worker')} and "
        f"{format_count(summary['threads'], 'thread')}; {describe_machine_and_date(summary)}."
    )


def describe_machine_and_date(summary: Summary) -> str:
    """Return the machine, the versions of its servers, and the date."""
    machine = summary["machine"]
    return (
        f"{machine['cpus']} CPUs, Python {machine['python']}, {describe_database(summary)}, "
        f"{machine['redis']}; {summary['started'][:10]}"
    )


def describe_database(summary: Summary) -> str:
    """Return the name and version of the database of a run."""
    machine = summary["machine"]
    return machine.get("database") or f"PostgreSQL {machine['postgres']}"
