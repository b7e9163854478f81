"""The folder in which the workers of a node keep what they count. Used by gunicorn's hooks.

In memory (/dev/shm) where that is to be had: a count is a write into a mapped file.
"""

from __future__ import annotations

import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
SHARED_MEMORY = Path("/dev/shm")


def wanted() -> bool:
    """Whether the environment has a METRICS_TOKEN, or a file of it."""
    return bool(os.environ.get("METRICS_TOKEN") or os.environ.get("METRICS_TOKEN_FILE"))


def begin(server: Any) -> None:
    """Before the first worker: an empty folder, named in the environment for the workers.

    Raises RuntimeError when the folder belongs to somebody else.
    """
    if not wanted():
        return
    folder = Path(os.environ.setdefault(VARIABLE, str(_folder_of(server))))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} is somebody else's: set {VARIABLE} to a folder of yours")
    if not server.master_pid:  # else the node before this one still counts there (SIGUSR2)
        _empty(folder)


def worker_is_gone(pid: int) -> None:
    """Its gauges go; what it counted stays, for a counter never falls."""
    if VARIABLE in os.environ:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid)  # type: ignore[no-untyped-call]


def end(server: Any) -> None:
    """After the last worker: the folder goes, if begin() made it up."""
    folder = os.environ.get(VARIABLE)
    if folder == str(_folder_of(server)) and not server.reexec_pid:
        _empty(Path(folder))
        Path(folder).rmdir()


def _folder_of(server: Any) -> Path:
    """One for each address that a node listens at: what a killed one left is found again."""
    base = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    listens = sha256(repr(server.cfg.address).encode()).hexdigest()[:12]
    return base / f"oversold-metrics-{os.getuid()}-{listens}"


def _empty(folder: Path) -> None:
    for file in folder.glob("*.db"):
        file.unlink(missing_ok=True)
