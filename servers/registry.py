"""The registry of the processes that use the embedded servers, in var/users.json.

Such a process is called a user of the servers. If a user is killed, the next user finds in the
registry which processes and databases the killed user has left.

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

from servers.server_errors import EmbeddedError, advise_on_error
from servers.waiting import wait_for

#: Tolerance between two readings of a process's start time. The system computes it from the boot
#: time, which changes when the machine's clock is corrected.
START_TIME_TOLERANCE_SECONDS = 30.0
#: Time limit for a process to end after the first signal, and again after SIGKILL.
STOP_TIMEOUT_SECONDS = 5.0


@contextmanager
def registry(folder: Path, undo: ExitStack | None = None) -> Iterator[dict[str, Any]]:
    """Yield the registry while its file is locked. Write it if the block does not raise.

    undo  an exit stack that undoes what the block did. It is closed, while the file is still
          locked, if the block raises an exception or the file cannot be written

    Raises EmbeddedError, with advice, if the folder cannot be written. An OSError of the block
    becomes an EmbeddedError, too.
    """
    path = folder / "users.json"
    try:
        folder.mkdir(exist_ok=True)
        with open(folder / "lock", "w") as lock_file, undo or ExitStack() as undo_on_failure:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            registry_data = _read_registry_file(path)
            yield registry_data
            new_file = path.with_suffix(".partial")
            new_file.write_text(json.dumps(registry_data, indent=1))
            new_file.replace(path)
            undo_on_failure.pop_all()  # nothing failed, so nothing is undone
    except OSError as error:
        error.filename = error.filename or path
        raise EmbeddedError(advise_on_error(error)) from error


def _read_registry_file(path: Path) -> dict[str, Any]:
    """Return the content of the registry's file; an empty registry if it is missing or broken."""
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return {"users": []}


def read_identity(pid: int) -> dict[str, Any]:
    """Return a pid with its start time, because a pid may be reused."""
    return {"pid": pid, "created": psutil.Process(pid).create_time()}


def is_alive(process_identity: dict[str, Any]) -> bool:
    """Return whether the process with this identity is running.

    A zombie does not count as running. In a container without an init process, a zombie never
    goes away.
    """
    try:
        process = psutil.Process(process_identity["pid"])
        difference = abs(process.create_time() - float(process_identity["created"]))
        has_same_start = difference < START_TIME_TOLERANCE_SECONDS
        return has_same_start and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end_process(
    process_identity: dict[str, Any],
    first_signal: signal.Signals = signal.SIGTERM,
    timeout: float = STOP_TIMEOUT_SECONDS,
) -> None:
    """Send the first signal to a process and, if it still runs after `timeout` seconds, SIGKILL.

    If the process leads a process group, SIGKILL is sent to the whole group. After SIGKILL, wait at
    most `timeout` seconds. Nothing happens if the process has ended.
    """
    pid = process_identity["pid"]
    for number in (first_signal, signal.SIGKILL):
        if not is_alive(process_identity):
            return
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL and os.getpgid(pid) == pid:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)
        wait_for(lambda: not is_alive(process_identity), timeout)
