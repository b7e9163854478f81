"""The users of the embedded servers, in var/users.json.

With it, the next user can end what a killed user left running.

{"users": [{"pid": 1, "created": 1.5, "children": [...], "databases": [...]}],
 "valkey": {"pid": 2, "created": 1.6, "port": 6400}}
"""

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from servers.server_errors import EmbeddedError, explain
from servers.waiting import wait_for

#: By how much two readings of one process's start time may differ: they are computed from the boot
#: time, which moves when the machine's clock is corrected.
SAME_START_SECONDS = 30.0
#: How long a process may take to end after SIGTERM, and after SIGKILL, in seconds.
STOP_TIMEOUT = 5.0


@contextmanager
def registry(folder: Path, undo: ExitStack | None = None) -> Iterator[dict[str, Any]]:
    """Yield the users and their Valkey under a file lock; written if the block raises nothing.

    undo  closed under the lock, only if the block fails or the file cannot be written

    Raises EmbeddedError, with what to do, if the folder cannot be written.
    """
    path = folder / "users.json"
    try:
        folder.mkdir(exist_ok=True)
        with open(folder / "lock", "w") as lock_file, undo or ExitStack() as undo_on_failure:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            registry_data = _read(path)
            yield registry_data
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(registry_data, indent=1))
            partial.replace(path)
            undo_on_failure.pop_all()
    except OSError as error:
        error.filename = error.filename or path
        raise EmbeddedError(explain(error)) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return {"users": []}


def identity(pid: int) -> dict[str, Any]:
    """Return a pid with its start time, because a pid may be reused."""
    return {"pid": pid, "created": psutil.Process(pid).create_time()}


def is_alive(process_identity: dict[str, Any]) -> bool:
    """Return whether the process of this identity runs."""
    try:
        process = psutil.Process(process_identity["pid"])
        difference = abs(process.create_time() - float(process_identity["created"]))
        return difference < SAME_START_SECONDS and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(
    process_identity: dict[str, Any],
    how: signal.Signals = signal.SIGTERM,
    timeout: float = STOP_TIMEOUT,
) -> None:
    """Send the signal `how` to a process, and SIGKILL after `timeout` seconds.

    SIGKILL goes to the whole session if the process leads one. Nothing happens if it has ended.
    """
    pid = process_identity["pid"]
    for number in (how, signal.SIGKILL):
        if not is_alive(process_identity):
            return
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL and os.getpgid(pid) == pid:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)
        wait_for(lambda: not is_alive(process_identity), timeout)
