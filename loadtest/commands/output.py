"""The output of a command: its progress in the terminal, and its results in results/<time>/."""

import io
import os
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from loadtest.judge import history
from loadtest.judge.history import Event
from loadtest.judge.run import Run, Summary
from loadtest.report import html_report, tables
from loadtest.report.tables import Sheet
from loadtest.stack.stack import ROOT, Stack
from servers.embedded import VAR

RESULTS = ROOT / "results"
#: The width of output to a pipe or a file: enough for the matrix.
PIPED_COLUMNS = 120


def set_up_console() -> Console:
    """Return a console on stdout without highlighting, for a terminal or a pipe.

    From this call on, stdout and stderr print `?` for characters that their encodings lack.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    width = None  # the terminal's
    if not sys.stdout.isatty():
        width = PIPED_COLUMNS
    return Console(width=width, highlight=False)


class Progress(Status):
    """Shows the present step of a command, as one line that is updated.

    If stdout is not a terminal, each step is printed on a new line instead.
    """

    def __init__(self, console: Console) -> None:
        super().__init__("starting", console=console)

    def __call__(self, step: str) -> None:
        """Show that this step of the command begins."""
        step = escape(step)  # it may have the name of a target, which may look like Rich's markup
        if not self.console.is_terminal:
            self.console.print(f"[dim]{step}[/]")
        self.update(step)
        self.start()


class Output:
    """The output of a command: its progress, and its results in results/<time>/.

    Use it as a context manager. finish() completes the results, and links results/latest to them.
    If the block ends before finish(), the folder of the results is removed. The log stays if an
    error ended the block, and is removed if the command was stopped.

    path  the folder of the results
    log   the open log file, which finish() moves into the folder
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(console)
        self.started_at = datetime.now(UTC).astimezone()  # with the machine's time zone
        self.path = RESULTS / self.started_at.strftime("%Y-%m-%dT%H-%M-%S")
        try:
            self.path.mkdir(parents=True)
        except FileExistsError:  # another run began in the same second
            self.path = self.path.with_name(f"{self.path.name}-{os.getpid()}")
            self.path.mkdir()
        VAR.mkdir(exist_ok=True)
        self.log = (VAR / f"run-{os.getpid()}.log").open("wb")
        self._is_complete = False

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            # A signal raises KeyboardInterrupt or SystemExit. Neither is a subclass of Exception.
            was_stopped = error_type is not None and not issubclass(error_type, Exception)
            # After an error the log stays, because it may explain more than the error's message.
            if was_stopped:
                Path(self.log.name).unlink(missing_ok=True)
            self.log.close()
            if not self._is_complete:
                shutil.rmtree(self.path, ignore_errors=True)
        finally:
            self.progress.stop()

    def finish(self) -> None:
        """Complete the results: move the log into their folder, and link results/latest to it."""
        shutil.move(self.log.name, self.path / "run.log")
        self._is_complete = True
        new_link = RESULTS / f".latest-{os.getpid()}"
        new_link.symlink_to(self.path.name)
        try:
            new_link.replace(RESULTS / "latest")
        except OSError:
            new_link.unlink()
            raise

    def make_summary(self, stack: Stack | None, runs: Sequence[Run]) -> Summary:
        """Return the summary of these runs, as in `summary.json`. Raises ShopUnreachable.

        stack  the nodes and servers of all runs. It is None for the command `target`, because the
               nodes and servers of a third-party shop are unknown
        """
        servers: Sequence[Mapping[str, Any]] = ()
        if stack is not None:
            servers = stack.shop().read_readyz()["parts"]
        summary: Summary = {
            "started": self.started_at.isoformat(timespec="seconds"),
            "machine": tables.describe_machine(servers),
            "nodes": 0,
            "workers": 0,
            "threads": 0,
            "runs": runs,
        }
        if stack is not None:
            summary["nodes"] = len(stack.nodes)
            summary["workers"] = stack.workers
            summary["threads"] = stack.threads
            summary["server"] = stack.server  # gthread or asgi: how gunicorn serves the shop
        return summary

    def write_results(
        self,
        summary: Summary,
        events: Sequence[Event],
        filename: str,
        table: str,
        *,
        title: str,
        faults: Mapping[str, str] | None = None,
    ) -> None:
        """Write summary.json, the table, history.jsonl and report.html, and finish the results.

        If report.html cannot be made, a warning is printed and the file is left out, because the
        verdicts do not depend on it. Raises OSError.

        filename  the file of the table, such as matrix.md
        table     the table as Markdown
        title     the title of report.html
        faults    the title of each fault, by name; None if the runs are rushes
        """
        tables.write_summary(self.path, summary)
        # Write the table after summary.json: tools/readme.py looks for the table, and then reads
        # the summary next to it.
        (self.path / filename).write_text(table)
        history.write(self.path / "history.jsonl", events)
        try:
            html_report.write(self.path, summary, events, title=title, faults=faults)
        except OSError:
            raise
        except Exception as error:  # an error in the page must not hide the verdicts
            self.log.write(traceback.format_exc().encode())
            self.console.print(
                f"{html_report.FILENAME} cannot be made ({type(error).__name__}: {error}); the "
                "other files are complete, and run.log has the traceback. Please report this",
                style="yellow",
                soft_wrap=True,
                markup=False,
            )
        self.finish()

    def print_conclusion(
        self, sheet: Sheet, reasons: Sequence[str], legend: str, filename: str
    ) -> int:
        """Print the table, the reasons, the legend, and the paths of summary.json and `filename`.

        Returns the exit code: 0 if every verdict was the expected one, else 1.

        sheet    the table, with a row for each run
        reasons  sentences that explain unexpected verdicts, and other remarks on the runs
        """
        self.console.print(sheet.table())
        tables.print_without_markup(self.console, reasons)
        self.console.print(legend, style="dim")
        self.print_files("summary.json", filename)
        return 0 if all(run["as_expected"] for run, _ in sheet.rows) else 1

    def print_files(self, *names: str) -> None:
        """Print the paths of these files of the results, except those that do not exist."""
        for name in names:
            if (self.path / name).exists():
                self.console.print(self.path.relative_to(RESULTS.parent) / name)
