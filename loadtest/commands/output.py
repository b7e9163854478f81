"""What a command shows while it runs, and what it leaves in results/<time>/."""

import io
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import psutil
from rich.console import Console
from rich.status import Status
from rich.table import Table

from loadtest.judge import history
from loadtest.judge.history import Event
from loadtest.judge.run import Run, Summary
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.stack.client import Shop, Strategy
from loadtest.stack.stack import ROOT, Stack, StackError
from servers.embedded import VAR

RESULTS = ROOT / "results"
#: Columns of output to a pipe or a file: enough for the matrix.
WIDTH = 120


def console_on_stdout() -> Console:
    """A plain console on stdout; what its encoding lacks is printed as a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    return Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)


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


class Output:
    """Where a command shows its progress, and its results: results/<time>/, under another name
    until it is complete, and the link results/latest.

    A context manager: a run that fails leaves its log; one that is stopped leaves nothing.

    path  where the run writes
    log   its log, outside `path` so that a run that fails leaves it
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(console)
        self.started = datetime.now(UTC).astimezone()  # with the machine's time zone
        self.final = RESULTS / self.started.strftime("%Y-%m-%dT%H-%M-%S")
        for stale in RESULTS.glob(".partial-*"):  # of runs that were killed
            if not psutil.pid_exists(int(stale.name.rpartition("-")[2])):
                _keep_or_remove(stale)
        self.path = RESULTS / f".partial-{self.final.name}-{os.getpid()}"
        self.path.mkdir(parents=True)
        VAR.mkdir(exist_ok=True)
        self.log = (VAR / f"run-{os.getpid()}.log").open("wb")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None and not issubclass(kind, Exception):  # the others name the log
                Path(self.log.name).unlink(missing_ok=True)
            self.log.close()
            shutil.rmtree(self.path, ignore_errors=True)  # finish() has moved it
        finally:
            self.progress.stop()

    def finish(self) -> None:
        """Give the folder its name and point `latest` at it."""
        shutil.move(self.log.name, self.path / "run.log")
        try:
            self.path.rename(self.final)
        except OSError:  # another run began in the same second
            self.final = self.final.with_name(f"{self.final.name}-{os.getpid()}")
            self.path.rename(self.final)
        link = self.final.with_name("latest")
        fresh = link.with_name(f".latest-{os.getpid()}")
        fresh.symlink_to(self.final.name)
        fresh.replace(link)

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
        report.write_summary(self.path, summary)
        history.write(self.path / "history.jsonl", events)
        html_report.write(self.path, summary, events, title=title, faults=faults)
        self.finish()

    def conclude(
        self, runs: Sequence[Run], table: Table, reasons: Sequence[str], legend: str, *files: str
    ) -> int:
        """Print the table of a run that is finished, why verdicts are off, what its words mean, and
        where its files are. Returns 0 if every verdict was the expected one, else 1."""
        self.console.print(table)
        report.print_reasons(self.console, reasons)
        self.console.print(legend, style="dim")
        self.print_files("summary.json", *files)
        return 0 if all(run["as_expected"] for run in runs) else 1

    def print_files(self, *names: str) -> None:
        """Print where these files are, in a folder that is finished."""
        folder = self.final.relative_to(RESULTS.parent)
        for name in names:
            self.console.print(f"{folder}/{name}")


def _keep_or_remove(stale: Path) -> None:
    """Give the folder of a killed run its name if there are results in it."""
    final = stale.with_name(stale.name.removeprefix(".partial-"))
    if (stale / "summary.json").exists() and not final.exists():
        stale.rename(final)
    else:
        shutil.rmtree(stale, ignore_errors=True)


def known_strategies(shop: Shop, asked: Sequence[str]) -> dict[str, Strategy]:
    """The strategies of a shop by name. Raises StackError for a name that is asked for and is not
    among them."""
    known = {one["name"]: one for one in shop.strategies()}
    require_known(asked, list(known), "lock")
    return known


def require_known(asked: Sequence[str], known: Sequence[str], what: str) -> None:
    """Raise StackError, with the known names, for a lock or a fault that is not among them."""
    if unknown := [name for name in asked if name not in known]:
        raise StackError(f"unknown {what}: {', '.join(unknown)}; there are {', '.join(known)}")
