"""What a command shows while it runs, and what it leaves in results/<time>/."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadtest.judge import history
from loadtest.judge.history import Event
from loadtest.judge.run import Run, Summary
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.stack.results import RESULTS, ResultFolder, now, result_folder
from loadtest.stack.stack import Stack, StackError


class Progress:
    """One line with the present step; with --verbose also how long each step took."""

    def __init__(self, console: Console, *, verbose: bool) -> None:
        self.console = console
        self.verbose = verbose
        self._status = console.status("starting")
        self._step = ""
        self._since = time.monotonic()

    def __enter__(self) -> Progress:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self("")
        self._status.stop()

    def __call__(self, step: str) -> None:
        now = time.monotonic()
        if self._step and self.verbose:
            self.console.print(f"[dim]{now - self._since:6.2f} s  {self._step}[/]")
        elif step and not self.console.is_terminal:
            self.console.print(f"[dim]{step}[/]")
        self._step, self._since = step, now
        self._status.update(step)
        self._status.start()

    def pause(self) -> None:
        """End the progress line before something else is printed."""
        self("")
        self._status.stop()


@dataclass
class Output:
    """What a command shows while it runs, and what it leaves in results/<time>/."""

    console: Console
    progress: Progress
    folder: ResultFolder
    started: datetime
    path: Path | None = None

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
        """Write summary.json, history.jsonl and report.html (see report.html.write)."""
        report.write_summary(self.folder.path, summary)
        history.write(self.folder.path / "history.jsonl", events)
        html_report.write(self.folder.path, summary, events, title=title, faults=faults)

    def finish(self) -> None:
        """Give the folder its name, and point results/latest at it."""
        self.path = self.folder.finish()

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
        """Print where these files are."""
        assert self.path is not None
        for name in names:
            self.console.print(f"{self.path.relative_to(RESULTS.parent)}/{name}", highlight=False)


@contextmanager
def output(console: Console, *, verbose: bool) -> Iterator[Output]:
    """Where a command shows its progress and writes its results, for as long as the block lasts."""
    started = now()
    with (
        Progress(console, verbose=verbose) as progress,
        result_folder(started, RESULTS) as folder,
    ):
        yield Output(console, progress, folder, started)


def require_known(asked: Sequence[str], known: Sequence[str], what: str) -> None:
    """Raise StackError, with the known names, for a lock or a fault that is not among them."""
    if unknown := [name for name in asked if name not in known]:
        raise StackError(f"unknown {what}: {', '.join(unknown)}; there are {', '.join(known)}")
