"""One headless run of Locust, as a process of its own: its result."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.stack.stack import ROOT


class NoResult(RuntimeError):
    """A rush ended without one. The message says why."""


class NotSold(NoResult):
    """The shop, or its target, was wrong; the message says all there is to know."""


def headless(
    locust: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> dict[str, Any]:
    """Run one rush with this command, and what locust.conf says. Raises NoResult.

    log  where its output goes; None: its warnings to stderr, and none of its tables
    """
    with tempfile.TemporaryDirectory(prefix="oversold-") as folder:
        result = Path(folder) / "result.json"
        command = [*locust, "--headless", "--result", str(result)]
        if log is None:
            status = _run([*command, "--skip-log-setup"], environment, None)
        else:
            with log.open("ab") as file:
                status = _run(command, environment, file)
        if not result.exists():
            where = "above" if log is None else f"in {log}"
            raise NoResult(f"Locust ended with {status} and no result; it says why {where}")
        run: dict[str, Any] = json.loads(result.read_text())
    if "error" in run:
        raise NotSold(run["error"])
    return run


def _run(command: Sequence[str], environment: Mapping[str, str] | None, file: Any) -> int:
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=file,
        stderr=None if file is None else subprocess.STDOUT,
        check=False,  # the exit code is the verdict, and `none` has to show an oversell
    ).returncode
