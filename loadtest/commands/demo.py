"""The contrast: the same rush without a lock and with one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from typing import Any

from rich.console import Console

from loadtest.expected import EXPECTED
from loadtest.judge import history
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.rush.locust_process import Buyers
from loadtest.stack.results import RESULTS, ResultFolder, now, result_folder
from loadtest.stack.stack import Stack, StackError

#: Without a lock, with A1's, with the one to copy.
CONTRAST = ("none", "token", "redis")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is asked to do. `hold_ms` in milliseconds, `deadline` in seconds."""

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

    @property
    def threads(self) -> int:
        """Enough in each worker for its node's buyers: accepts do not split evenly."""
        return max(1, ceil(self.buyers / self.nodes))


class Progress:
    """One line that says what is being done, and with --verbose how long each step took."""

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


def run(setting: Setting, console: Console) -> int:
    """Run the rush under each lock, print the table, keep the results. 0 if all came as expected.

    Raises StackError, with what to do, when a part does not start.
    """
    started = now()
    with ExitStack() as everything:
        progress = everything.enter_context(Progress(console, verbose=setting.verbose))
        folder = everything.enter_context(result_folder(started))
        extras = not set(setting.locks) <= set(CONTRAST)
        stack = everything.enter_context(
            stack_for(setting, folder, progress, extras=extras, record=True)
        )
        buyers = everything.enter_context(Buyers(stack, log=folder.log))
        expected = _expectations(stack, setting)
        runs = []
        for lock in setting.locks:
            progress(f"{setting.buyers} buyers, {setting.stock} units, lock: {lock}")
            runs.append(rush(buyers, setting, lock, expected[lock]))
            buyers.save(folder.path, lock)
            console.print(f"{lock:8} {report.verdict_cell(runs[-1])}", highlight=False)
        summary = {
            "started": started.isoformat(timespec="seconds"),
            **summary_of(stack, setting),
            "runs": runs,
        }
        report.write_summary(folder.path / "summary.json", summary)
        (folder.path / "demo.md").write_text(report.markdown(summary, report.DEMO))
        events = stack.events()
        history.write(folder.path / "history.jsonl", events)
        html_report.write(folder.path, summary, events, title="the rush")
        progress("stopping")
        kept = folder.finish()
    console.print()
    console.print(report.table(runs, report.DEMO))
    console.print()
    for name in ("summary.json", html_report.NAME):
        console.print(f"{kept.relative_to(RESULTS.parent)}/{name}", highlight=False)
    return 0 if all(one["as_expected"] for one in runs) else 1


def _expectations(stack: Stack, setting: Setting) -> dict[str, str]:
    """Each lock's expected verdict under the rush. Raises StackError for one the shop lacks."""
    known = [one["name"] for one in stack.shop().strategies()]
    if unknown := [lock for lock in setting.locks if lock not in known]:
        raise StackError(f"unknown lock: {', '.join(unknown)}; there are {', '.join(known)}")
    return {lock: EXPECTED[lock]["rush"] for lock in setting.locks}


def stack_for(
    setting: Setting,
    folder: ResultFolder,
    progress: Callable[[str], None],
    *,
    extras: bool,
    record: bool = False,
) -> Stack:
    """The stack that a setting asks for, not yet started; `extras` and `record` as in Stack."""
    return Stack(
        nodes=setting.nodes,
        workers=setting.workers,
        threads=setting.threads,
        log=folder.log,
        progress=progress,
        extras=extras,
        record=record,
    )


def summary_of(stack: Stack, setting: Setting) -> dict[str, Any]:
    """Where a run took place, as `summary.json` says it."""
    return {
        "machine": report.machine(stack.shop().ready()["parts"]),
        "nodes": setting.nodes,
        "workers": setting.workers,
        "threads": setting.threads,
    }


def rush(buyers: Buyers, setting: Setting, lock: str, expected: str) -> dict[str, Any]:
    """One rush under one lock, with what was expected of it. Raises StackError."""
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
    return {**run, "expected": expected, "as_expected": run["verdict"] == expected}
