"""What a command shows while it runs, and what it leaves in results/<time>/."""

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.table import Table

from loadtest.judge import history
from loadtest.judge.history import Event
from loadtest.judge.run import Run, Summary
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.stack.results import RESULTS, ResultFolder, now
from loadtest.stack.stack import Stack, StackError

#: Columns of output to a pipe or a file: enough for the matrix.
WIDTH = 120


def console_on_stdout() -> Console:
    """A console on stdout; what its encoding lacks is printed as a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    return Console(width=None if sys.stdout.isatty() else WIDTH)


class Progress(Status):
    """One line with the present step; where there is no terminal, a line for each step."""

    def __init__(self, console: Console) -> None:
        super().__init__("starting", console=console)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __call__(self, step: str) -> None:
        if not self.console.is_terminal:
            self.console.print(f"[dim]{step}[/]")
        self.update(step)
        self.start()


@dataclass
class Output:
    """What a command shows while it runs, and what it leaves in results/<time>/."""

    console: Console
    progress: Progress
    folder: ResultFolder
    started: datetime

    def summary(self, stack: Stack, runs: Sequence[Run]) -> Summary:
        """The summary of these runs, all of them on this stack."""
        return {
            "started": self.started.isoformat(timespec="seconds"),
            "machine": report.machine(stack.shop().ready()["parts"]),
            "nodes": len(stack.nodes),
            "workers": stack.workers,
            "threads": stack.threads,
            "server": stack.server,
            "runs": runs,
        }

    def write(
        self,
        summary: Summary,
        events: Sequence[Event],
        *,
        title: str,
        faults: Mapping[str, str] | None = None,
    ) -> None:
        """Write summary.json, history.jsonl and report.html (see report.html.write), and finish the
        folder."""
        report.write_summary(self.folder.path, summary)
        history.write(self.folder.path / "history.jsonl", events)
        html_report.write(self.folder.path, summary, events, title=title, faults=faults)
        self.folder.finish()

    def conclude(
        self, runs: Sequence[Run], table: Table, reasons: Sequence[str], legend: str, *files: str
    ) -> int:
        """Print the table of a run that is finished, why verdicts are off, what its words mean, and
        where its files are. Returns 0 if every verdict was the expected one, else 1."""
        self.console.print(table)
        report.print_reasons(self.console, reasons)
        self.console.print(legend, style="dim", highlight=False)
        self.print_files("summary.json", *files)
        return 0 if all(run["as_expected"] for run in runs) else 1

    def print_files(self, *names: str) -> None:
        """Print where these files are, in a folder that is finished."""
        folder = self.folder.final.relative_to(RESULTS.parent)
        for name in names:
            self.console.print(f"{folder}/{name}", highlight=False)


@contextmanager
def output(console: Console) -> Iterator[Output]:
    """Where a command shows its progress and writes its results, for as long as the block lasts."""
    started = now()
    with Progress(console) as progress, ResultFolder(RESULTS, started) as folder:
        yield Output(console, progress, folder, started)


def require_known(asked: Sequence[str], known: Sequence[str], what: str) -> None:
    """Raise StackError, with the known names, for a lock or a fault that is not among them."""
    if unknown := [name for name in asked if name not in known]:
        raise StackError(f"unknown {what}: {', '.join(unknown)}; there are {', '.join(known)}")
