"""The tables of verdicts and figures, for the terminal and for Markdown, and summary.json.

A run is one rush under one strategy, with its figures and its verdict; a table has a row for each.
"""

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
#: The value of `fault` in a run of a rush against a single process of the shop.
ONE_PROCESS = "rush-one-process"
#: The columns of figures in the table of `demo`, and of `target`, the rush on a third-party shop.
DEMO_COLUMNS = (
    "orders",
    "stock left",
    "oversold",
    "lost updates",
    "no answer",
    "p50 ms",
    "seconds",
)
#: The columns of figures in the table of `matrix`, which compares many strategies.
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
#: The number of buyers without a final answer. The column is left out if it is 0 in every row.
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
    """A table for the terminal and for Markdown, with a row for each run.

    The first two columns are the strategy and the verdict.

    headings  the headings of the other columns, which have figures
    rows      each run, with the texts of its figures
    """

    headings: Sequence[str]
    rows: Sequence[tuple[Run, Sequence[str]]]

    def table(self) -> Table:
        """Return the table for the terminal.

        Each heading has one word per line, so that the table fits into 80 columns.
        """
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
            label = make_run_label(run, quote="`")
            rows.append([label, make_bold_verdict(run["verdict"])] + list(texts))
        return markdown_table(self.all_headings, rows, paragraph)

    @property
    def all_headings(self) -> list[str]:
        """The headings of all columns: the strategy, the verdict, and the figures."""
        has_target = any("target" in run for run, _ in self.rows)  # a target: a third-party shop
        return ["target" if has_target else "lock", "verdict"] + list(self.headings)


def make_sheet(runs: Sequence[Run], columns: Sequence[str]) -> Sheet:
    """Return the table of these runs, without OPTIONAL_COLUMN if every buyer has an answer."""
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

    left  how many of the first columns are aligned to the left; the other columns, which have
          figures, are aligned to the right
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
    """Return the reasons and findings of all runs that are not as expected, one sentence each."""
    sentences = []
    for run in runs:
        if not run["as_expected"]:
            sentences += explain_run(run)
    return sentences


def explain_run(run: Run) -> list[str]:
    """Return the reason of a run's verdict (`why`), if it has one, and the run's findings.

    Each is one sentence that begins with the strategy.
    """
    texts = [run.get("why", "")] + list(run.get("findings", ()))
    without_repetitions = dict.fromkeys(texts)
    return [f"{make_run_label(run)}: {text}" for text in without_repetitions if text]


def print_without_markup(console: Console, lines: Sequence[str]) -> None:
    """Print lines in yellow, as they are.

    The lines may have text of a third-party shop, which must not be interpreted as Rich's markup.
    """
    for line in lines:
        console.print(line, style="yellow", highlight=False, soft_wrap=True, markup=False)


def describe_machine(servers: Sequence[Mapping[str, Any]]) -> Machine:
    """Return the number of CPUs, and the versions of Python and of the servers.

    servers  the servers that /readyz lists; empty if they are unknown. The `detail` of a server
             begins with its version, such as `version 18.4,` or `Valkey 9.1.2,`
    """
    versions = {
        server["name"]: str(server["detail"]).removeprefix("version ").partition(",")[0]
        for server in servers
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
    """Write summary.json into a folder atomically. Raises OSError, for example on a full disk."""
    temporary_file = folder / f".summary-{os.getpid()}.json"
    try:
        temporary_file.write_text(json.dumps(summary, indent=1) + "\n")
        temporary_file.replace(folder / "summary.json")
    except OSError:
        temporary_file.unlink(missing_ok=True)
        raise


def make_run_label(run: Run, quote: str = "") -> str:
    """Return the name of a run's strategy, followed by "(one process)" if the shop had only one.

    quote  a mark to put before and after the name, such as a backtick
    """
    label = f"{quote}{run['lock']}{quote}"
    if run["fault"] == ONE_PROCESS:  # `fault` is the column of the rush in loadtest/expected.py
        label += " (one process)"
    return label


def format_figures(run: Run, runs: Sequence[Run], columns: Sequence[str]) -> list[str]:
    """Return the texts of the columns for a run. They are empty if the verdict is `not_run`.

    runs  all runs of the table; durations are compared with those of REFERENCE_STRATEGY
    """
    if run["verdict"] == "not_run":
        return [""] * len(columns)
    return [_format_figure(name, run, runs) for name in columns]


def _format_figure(column: str, run: Run, runs: Sequence[Run]) -> str:
    """Return the text of one column for a run.

    runs  all runs of the table
    """
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
        # A run with the verdict `not_run` has no duration.
        if reference_run["lock"] == REFERENCE_STRATEGY and "duration_s" in reference_run
    ]
    if not durations:
        return "-"
    return f"{run['duration_s'] / median(durations):.2f}"


def describe_setup(summary: Summary) -> str:
    """Return one sentence on the buyers and units of each rush, the machine and the date.

    In a rush many buyers try to buy at the same moment. `hold` is the time that each purchase
    spends between its check and its decrement.
    """
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
