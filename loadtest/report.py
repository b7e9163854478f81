"""What a run leaves behind: a folder, a summary for programs, a table for people."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

import psutil
from rich.table import Table

from shop.embedded import VAR

MATRIX_COLUMNS = (
    "lock",
    "verdict",
    "orders",
    "stock left",
    "lost updates",
    "p50 ms",
    "p95 ms",
    "seconds",
    "x row-lock",
)
COLUMNS = ("lock", "verdict", "orders", "stock left", "oversold", "lost updates", "p50", "seconds")


class ResultFolder:
    """results/<time>/, under another name until it is whole, and the link results/latest.

    path  where the run writes
    log   its log, outside `path` so that it can still be read when the run fails
    """

    def __init__(self, base: Path, started: datetime) -> None:
        self.final = base / started.strftime("%Y-%m-%dT%H-%M-%S")
        for stale in base.glob(".partial-*"):  # of runs that were killed
            if not psutil.pid_exists(int(stale.name.rpartition("-")[2])):
                shutil.rmtree(stale, ignore_errors=True)
        self.path = base / f".partial-{self.final.name}-{os.getpid()}"
        self.path.mkdir(parents=True)
        VAR.mkdir(exist_ok=True)
        self.log = (VAR / f"run-{os.getpid()}.log").open("wb")

    def finish(self) -> Path:
        """Give it its name and point `latest` at it."""
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
        return self.final


@contextmanager
def result_folder(base: Path, started: datetime) -> Iterator[ResultFolder]:
    """A folder for one run. A run that fails leaves its log, one that is stopped nothing."""
    folder = ResultFolder(base, started)
    try:
        yield folder
    except Exception:
        raise  # the error names the log
    except BaseException:
        Path(folder.log.name).unlink(missing_ok=True)
        raise
    finally:
        folder.log.close()
        shutil.rmtree(folder.path, ignore_errors=True)  # gone already if it was finished


def machine(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where it ran: `parts` is what /readyz says of the servers."""
    said = {part["name"]: str(part["detail"]) for part in parts}
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "postgres": said["PostgreSQL"].removeprefix("version ").partition(",")[0],
        "redis": said["Redis (locks)"].partition(",")[0],
    }


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(summary, indent=1) + "\n")


def verdict_cell(run: Mapping[str, Any]) -> str:
    """The verdict with a sign that does not need colour."""
    colour = {"exact": "green", "oversold": "red"}.get(run["verdict"], "yellow")
    sign = "✓" if run["verdict"] == "exact" else "✗"
    surprise = "" if run["as_expected"] else f" (expected {run['expected']})"
    return f"[bold {colour}]{sign} {run['verdict'].upper()}[/]{surprise}"


def table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """One line per run."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        side: Literal["left", "right"] = "left" if column in ("lock", "verdict") else "right"
        shown.add_column(column, justify=side, no_wrap=True)
    for run in runs:
        shown.add_row(run["lock"], verdict_cell(run), *figures(run))
    return shown


def figures(run: Mapping[str, Any]) -> list[str]:
    """The numbers of a run, in the order of COLUMNS behind the verdict."""
    return [
        str(run["orders"]),
        str(run["stock_left"]),
        str(run["oversold"]),
        str(run["lost_updates"]),
        f"{run['buy_ms']['p50']:.0f} ms",
        f"{run['duration_s']:.2f}",
    ]


def markdown(summary: Mapping[str, Any]) -> str:
    """The table for the README, with where and when it was measured."""
    lines = [
        "| `lock` | verdict | orders | stock left | oversold | lost updates | p50 | seconds |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for run in summary["runs"]:
        cells = [f"`{run['lock']}`", f"**{run['verdict'].upper()}**", *figures(run)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _where(summary)]) + "\n"


def not_run(strategy: Mapping[str, Any], setting: Any) -> dict[str, Any]:
    """The run of a strategy whose server is missing: said, not passed over."""
    return {
        "lock": strategy["name"],
        "fault": "rush",
        "buyers": setting.buyers,
        "initial_stock": setting.stock,
        "hold_ms": setting.hold_ms,
        "verdict": "not_run",
        "expected": strategy["expected"]["rush"],
        "as_expected": True,
        "why": f"{strategy['needs']} is not set, and no such server is installed",
    }


def matrix_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """One line per strategy, durations beside that of `row-lock`."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in MATRIX_COLUMNS:
        left = column in ("lock", "verdict")
        shown.add_column(column, justify="left" if left else "right", no_wrap=True)
    for run in runs:
        shown.add_row(_row_name(run), verdict_cell(run), *matrix_figures(run, runs))
    return shown


def matrix_figures(run: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The numbers of a run, in the order of MATRIX_COLUMNS behind the verdict."""
    if run["verdict"] == "not_run":
        return [""] * (len(MATRIX_COLUMNS) - 2)
    yardstick = [one["duration_s"] for one in runs if one["lock"] == "row-lock"]
    relative = f"{run['duration_s'] / median(yardstick):.2f}" if yardstick else "-"
    return [
        str(run["orders"]),
        str(run["stock_left"]),
        str(run["lost_updates"]),
        f"{run['buy_ms']['p50']:.0f}",
        f"{run['buy_ms']['p95']:.0f}",
        f"{run['duration_s']:.2f}",
        relative,
    ]


def matrix_markdown(summary: Mapping[str, Any]) -> str:
    """The matrix for the README."""
    runs = summary["runs"]
    lines = [
        f"| {' | '.join(MATRIX_COLUMNS)} |",
        f"|---|---|{'--:|' * (len(MATRIX_COLUMNS) - 2)}",
    ]
    for run in runs:
        cells = [f"`{_row_name(run)}`", run["verdict"], *matrix_figures(run, runs)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _where(summary)]) + "\n"


def _row_name(run: Mapping[str, Any]) -> str:
    return str(run["lock"]) + (" (one process)" if run["fault"] == "rush-one-process" else "")


def _where(summary: Mapping[str, Any]) -> str:
    """One sentence: what was run, where and when."""
    where = summary["machine"]
    first = summary["runs"][0]
    return (
        f"{first['buyers']} buyers, {first['initial_stock']} units, hold {first['hold_ms']} ms; "
        f"{summary['nodes']} nodes of {summary['workers']} workers and {summary['threads']} "
        f"threads; {where['cpus']} CPUs, Python {where['python']}, PostgreSQL "
        f"{where['postgres']}, {where['redis']}; {summary['started'][:10]}."
    )


def now() -> datetime:
    return datetime.now(UTC).astimezone()
