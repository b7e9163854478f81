"""What the commands share: their setting, progress line and results, and how they run a rush."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import cast

from rich.console import Console

from loadtest.commands.judged import judged_with_history
from loadtest.expected import EXPECTED
from loadtest.judge import history
from loadtest.judge.history import Event
from loadtest.judge.run import Run, Summary
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.rush.cut_short import cut_short, reasons_of
from loadtest.rush.locust_process import Buyers
from loadtest.rush.open_files import TooFewFiles, allow
from loadtest.stack.results import RESULTS, ResultFolder, now, result_folder
from loadtest.stack.stack import SERVERS, SPARE_THREADS, Stack, StackError

#: Without a lock, with A1's, with the one to copy.
CONTRAST = ("none", "token", "redis")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is asked to do. `hold_ms` in milliseconds, `deadline` in seconds; `mine` is a file
    of one's own that serve adds as the strategy `mine`; `max_waiting` is SHOP_MAX_WAITING; `server`
    as in Stack; `locust_workers` are the processes that the buyers are in."""

    locks: Sequence[str] = CONTRAST
    buyers: int = 200
    stock: int = 100
    hold_ms: int = 0
    nodes: int = 2
    workers: int = 2
    product: str = "apple"
    deadline: float = 60.0
    verbose: bool = False
    repeat: int = 1
    mine: str = ""
    max_waiting: int = 0
    server: str = SERVERS[0]
    locust_workers: int = 1

    @property
    def threads(self) -> int:
        """Of each worker: enough for all buyers of its node, for accepts do not split evenly, and
        some for the page and the reports."""
        return ceil(self.buyers / self.nodes) + SPARE_THREADS


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


def allow_files(setting: Setting) -> None:
    """Let the processes that are started after this open as many files as a rush needs. Raises
    StackError where this machine allows fewer."""
    try:
        allow(
            ceil(setting.buyers / setting.locust_workers),
            what=f"Locust with {setting.buyers} buyers in {setting.locust_workers} processes",
            otherwise=f"take more with --locust-workers {2 * setting.locust_workers}",
        )
        allow(
            setting.threads,
            what=f"a node with {setting.threads} buyers",
            otherwise="take more nodes with --nodes",
        )
    except TooFewFiles as error:
        raise StackError(str(error)) from error


def stack_for(setting: Setting, output: Output, *, extras: bool, record: bool = False) -> Stack:
    """The stack for a setting, not yet started; `extras` and `record` as in Stack."""
    return Stack(
        nodes=setting.nodes,
        workers=setting.workers,
        threads=setting.threads,
        log=output.folder.log,
        progress=output.progress,
        extras=extras,
        record=record,
        environment={"SHOP_MAX_WAITING": str(setting.max_waiting)},
        server=setting.server,
    )


@contextmanager
def stack_and_buyers(
    setting: Setting, output: Output, *, extras: bool, record: bool = False
) -> Iterator[tuple[Stack, Buyers]]:
    """The stack for a setting, and a Locust that starts beside its nodes; its buyers stay from one
    rush to the next. Raises StackError when a part does not start."""
    allow_files(setting)
    with ExitStack() as everything:
        stack = stack_for(setting, output, extras=extras, record=record)
        buyers = Buyers(stack, log=output.folder.log, stay=True, workers=setting.locust_workers)
        stack.beside = buyers.start
        everything.callback(buyers.stop)  # when the stack fails
        everything.enter_context(stack)
        everything.enter_context(buyers)  # stopped first: then no connection keeps a node
        yield stack, buyers


def rush(buyers: Buyers, setting: Setting, lock: str, fault: str = "rush") -> Run:
    """One rush under one lock, compared with the verdict expected of it. Raises StackError.

    If the nodes record, the judge decides from their records instead of Locust's.
    """
    stack = buyers.stack
    stack.settle_for(lock)
    before = stack.keys_on_lock_servers() if stack.record else set()
    run = buyers.rush(
        lock=lock,
        buyers=setting.buyers,
        stock=setting.stock,
        hold_ms=setting.hold_ms,
        product=setting.product,
        deadline=setting.deadline,
    )
    if "error" in run:
        raise StackError(run["error"])
    if stack.record:
        judgement = judged_with_history(
            stack, run, buyers=setting.buyers, stock=setting.stock, lock=lock,
            product=setting.product, keys_before=before,
        )  # fmt: skip
        run |= judgement.as_run()
        if reasons := reasons_of(run):
            cut_short(run, reasons)
    expected = EXPECTED[lock][fault]
    as_expected = run["verdict"] == expected
    if not as_expected and expected == "oversold" and setting.buyers <= setting.stock:
        run["why"] = (
            f"{setting.buyers} buyers for {setting.stock} units are too few to oversell: "
            "let more buyers come than there are units"
        )
    return cast(Run, {**run, "fault": fault, "expected": expected, "as_expected": as_expected})


def require_known(asked: Sequence[str], known: Sequence[str], what: str) -> None:
    """Raise StackError, with the known names, for a lock or a fault that is not among them."""
    if unknown := [name for name in asked if name not in known]:
        raise StackError(f"unknown {what}: {', '.join(unknown)}; there are {', '.join(known)}")
