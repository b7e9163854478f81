"""Copies of the project, each in its own folder like a fresh clone, and commands that run there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
#: What git ignores, and git's own.
MADE = (
    ".git",
    ".venv*",
    "var",
    "results",
    "__pycache__",
    ".env",
    "*_cache",
    "secrets",
    "oversold-pack*",
    "workshop/mine*",
)
#: Settings and proxies of a user's own, none of which may matter to a demo.
OWN = {
    "http_proxy": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "ALL_PROXY": "socks5://127.0.0.1:9",
    "PYTHONIOENCODING": "latin-1",
    "LOCUST_HEADLESS": "1",
    "PGSERVICE": "nowhere",
    "PGOPTIONS": "-c nonsense=1",
    "PGPORT": "1",
    "HTTPS": "1",
    "DEBUG": "1",
    "BUY_RATE_LIMIT": "1/60s",
    "GUNICORN_CMD_ARGS": "--workers 0",
}


def copy_project(folder: Path) -> Path:
    """Copy every file of the project into a folder, and return the folder."""
    for name in list_files(ROOT):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def list_files(root: Path) -> list[str]:
    """Return the paths of all files of the project, without those that git ignores."""
    return sorted(path.relative_to(root).as_posix() for path in _walk(root))


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if any(path.match(pattern) for pattern in MADE):
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def user_environment() -> dict[str, str]:
    """Return the environment of a user, without the variables of this test run and of make.

    It has settings and proxies that must not matter to a demo.
    """
    ours = (
        "DATABASE_URL",
        "REDIS_",
        "SHOP_",
        "DJANGO_",
        "PYTEST_",
        "MAKE",
        "MFLAGS",
        "ARGS",
        "no_proxy",
        "NO_PROXY",
    )
    plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**plain, **OWN}


def start(
    folder: Path,
    *command: str,
    stdin: int = subprocess.DEVNULL,
    preexec_fn: Callable[[], object] | None = None,
) -> subprocess.Popen[str]:
    """Start a Python command in a folder, in its own process group, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=user_environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",  # what is printed is in latin-1: see fresh_environment
        start_new_session=True,
        preexec_fn=preexec_fn,
    )


def finish(command: subprocess.Popen[str]) -> str:
    """Wait for the end of the command, and return its output."""
    return command.communicate(timeout=180)[0]


def assert_ctrl_c_leaves_nothing(command: subprocess.Popen[str], folder: Path) -> None:
    """Press Ctrl-C, and assert that the command says so and leaves nothing behind."""
    os.killpg(command.pid, signal.SIGINT)
    assert "stopped; everything that was started is stopped too" in finish(command)
    assert command.returncode == 130
    assert_nothing_is_left(folder)


def read_newest_runs(results: Path) -> list[dict[str, Any]]:
    """Return the runs of the newest results."""
    return list(json.loads((results / "latest" / "summary.json").read_text())["runs"])


def find_processes(folder: Path) -> list[str]:
    """Return every process that works in a folder or names it in its command line."""
    processes = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if process.status() != psutil.STATUS_ZOMBIE and (
                str(folder) in process.cwd() or any(str(folder) in word for word in words)
            ):
                processes.append(f"{process.pid} {' '.join(words)[:120]}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return processes


def assert_nothing_is_left(folder: Path) -> None:
    """Assert that no process is left, and no incomplete result."""
    deadline = time.monotonic() + 15  # Valkey ends a moment after SIGTERM
    while (left := find_processes(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == [], left
    results = folder / "results"
    assert [path.name for path in results.glob(".*")] == []
