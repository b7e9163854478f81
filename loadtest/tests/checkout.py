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
#: Patterns of paths that are not part of the project: git's own folder, and what git ignores.
IGNORED_PATTERNS = (
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
#: Settings and proxies that may be in a user's environment. No command of the project may use them:
#: a proxy or a port that is used would fail, because nothing listens there.
USER_VARIABLES = {
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
    """Return the paths, relative to `root`, of all files of the project in it.

    Files that git ignores are left out.
    """
    return sorted(path.relative_to(root).as_posix() for path in _walk(root))


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, except those that match IGNORED_PATTERNS."""
    for path in folder.iterdir():
        if any(path.match(pattern) for pattern in IGNORED_PATTERNS):
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def make_user_environment() -> dict[str, str]:
    """Return the environment for a command of a user: that of this process, with USER_VARIABLES.

    Variables that were set for the tests or by make are left out.
    """
    prefixes_of_test_variables = (
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
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(prefixes_of_test_variables)
    }
    return {**environment, **USER_VARIABLES}


def start_python(
    folder: Path,
    *arguments: str,
    stdin: int = subprocess.DEVNULL,
    preexec_fn: Callable[[], object] | None = None,
) -> subprocess.Popen[str]:
    """Start Python with these arguments, in a folder and with the environment of a user.

    The process has its own process group, as in a terminal, so that a test can send Ctrl-C to the
    group. The attribute `stdout` of the process has its output and its errors.
    """
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=make_user_environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",  # the output is in latin-1: see USER_VARIABLES
        start_new_session=True,
        preexec_fn=preexec_fn,
    )


def read_until_end(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a process, and return its output."""
    return process.communicate(timeout=180)[0]


def assert_ctrl_c_leaves_nothing(process: subprocess.Popen[str], folder: Path) -> None:
    """Press Ctrl-C, and assert that the command reports its end and leaves no process or file."""
    os.killpg(process.pid, signal.SIGINT)
    assert "stopped; everything that was started is stopped too" in read_until_end(process)
    assert process.returncode == 130
    assert_nothing_is_left(folder)


def read_newest_runs(results: Path) -> list[dict[str, Any]]:
    """Return the runs in the summary of the newest command.

    results  the folder in which each command has a folder with its results
    """
    return list(json.loads((results / "latest" / "summary.json").read_text())["runs"])


def find_processes(folder: Path) -> list[str]:
    """Return the pid and the command of each process that belongs to a folder.

    A process belongs to the folder if it runs there, or if its command contains the folder's path.
    """
    processes = []
    for process in psutil.process_iter():
        try:
            arguments = process.cmdline()
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if any(str(folder) in text for text in (process.cwd(), *arguments)):
                processes.append(f"{process.pid} {' '.join(arguments)[:120]}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return processes


def assert_nothing_is_left(folder: Path) -> None:
    """Assert that no process of this folder runs, and that its results/ has no hidden file.

    A command creates the link `latest` under a name that begins with a dot, and then renames it.
    """
    deadline = time.monotonic() + 15  # Valkey ends a moment after SIGTERM
    while (processes := find_processes(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes == []
    results = folder / "results"
    assert [path.name for path in results.glob(".*")] == []
