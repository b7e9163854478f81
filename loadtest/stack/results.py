"""The folder of a run's results: results/<time>/."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import psutil

from servers.embedded import ROOT, VAR

RESULTS = ROOT / "results"


class ResultFolder:
    """results/<time>/, under another name until it is complete, and the link results/latest.

    A context manager: a run that fails leaves its log; one that is stopped leaves nothing.

    path  where the run writes
    log   its log, outside `path` so that a run that fails leaves it
    """

    def __init__(self, base: Path, started: datetime) -> None:
        self.final = base / started.strftime("%Y-%m-%dT%H-%M-%S")
        for stale in base.glob(".partial-*"):  # of runs that were killed
            if not psutil.pid_exists(int(stale.name.rpartition("-")[2])):
                _keep_or_remove(stale)
        self.path = base / f".partial-{self.final.name}-{os.getpid()}"
        self.path.mkdir(parents=True)
        VAR.mkdir(exist_ok=True)
        self.log = (VAR / f"run-{os.getpid()}.log").open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):  # the others name the log
            Path(self.log.name).unlink(missing_ok=True)
        self.log.close()
        shutil.rmtree(self.path, ignore_errors=True)  # finish() has moved it

    def finish(self) -> Path:
        """Give the folder its name and point `latest` at it. Returns its path."""
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


def _keep_or_remove(stale: Path) -> None:
    """Give the folder of a killed run its name if there are results in it."""
    final = stale.with_name(stale.name.removeprefix(".partial-"))
    if (stale / "summary.json").exists() and not final.exists():
        stale.rename(final)
    else:
        shutil.rmtree(stale, ignore_errors=True)


def now() -> datetime:
    """The time, with the machine's time zone."""
    return datetime.now(UTC).astimezone()
