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
from typing import Any, Literal

import psutil
from rich.table import Table

from shop.embedded import VAR

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
    where = summary["machine"]
    first = summary["runs"][0]
    lines += [
        "",
        f"{first['buyers']} buyers, {first['initial_stock']} units, hold {first['hold_ms']} ms; "
        f"{summary['nodes']} nodes of {summary['workers']} workers and {summary['threads']} "
        f"threads; {where['cpus']} CPUs, Python {where['python']}, PostgreSQL "
        f"{where['postgres']}, {where['redis']}; {summary['started'][:10]}.",
    ]
    return "\n".join(lines) + "\n"


def now() -> datetime:
    return datetime.now(UTC).astimezone()
