"""A copy of the project in a folder of its own, like a fresh clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent


def fresh_copy(folder: Path) -> Path:
    """Copy every file that git tracks or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def fresh_environment() -> dict[str, str]:
    """The environment without the variables of this test run and of make."""
    ours = ("DATABASE_URL", "REDIS_", "SHOP_", "DJANGO_", "PYTEST_", "MAKE", "MFLAGS", "ARGS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    """Start a Python command there, in a process group of its own, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=fresh_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def processes_of(folder: Path) -> list[str]:
    """Every process that works in the folder or names it."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if process.status() != psutil.STATUS_ZOMBIE and (
                str(folder) in process.cwd() or any(str(folder) in word for word in words)
            ):
                found.append(f"{process.pid} {' '.join(words)[:120]}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def assert_nothing_is_left(folder: Path) -> None:
    """No process is left, and nothing half-written in results/."""
    deadline = time.monotonic() + 5  # Valkey ends a moment after SIGTERM
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    results = folder / "results"
    assert [path.name for path in results.glob(".*")] == []
