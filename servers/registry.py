"""Users of the embedded servers, in var/users.json: what a killed user left can be ended later.

{"users": [{"pid": 1, "created": 1.5, "children": [...], "databases": [...]}],
 "valkey": {"pid": 2, "created": 1.6, "port": 6400}}
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from servers.errors import EmbeddedError, explain

#: Seconds by which two readings of one process's start time may differ: they are computed from the
#: boot time, which moves when the machine's clock is corrected.
SAME_START = 30.0
#: Seconds for a process to end after SIGTERM, and after SIGKILL.
STOP_TIMEOUT = 5.0


@contextmanager
def registry(folder: Path, undo: ExitStack | None = None) -> Iterator[dict[str, Any]]:
    """The users, read under a file lock, and written if the block raises nothing.

    undo  closed, still under the lock, only if the block fails or the file cannot be written

    Raises EmbeddedError, with what to do, where the folder cannot be written.
    """
    path = folder / "users.json"
    try:
        folder.mkdir(exist_ok=True)
        with open(folder / "lock", "w") as guard, undo or ExitStack() as taken_back:
            fcntl.flock(guard, fcntl.LOCK_EX)
            found = _read(path)
            yield found
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(found, indent=1))
            partial.replace(path)
            taken_back.pop_all()
    except OSError as error:
        error.filename = error.filename or path
        raise EmbeddedError(explain(error)) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return {"users": []}


def identity(pid: int) -> dict[str, Any]:
    """A pid with its start time: a pid may be used again."""
    return {"pid": pid, "created": psutil.Process(pid).create_time()}


def is_alive(known: dict[str, Any]) -> bool:
    """Whether the process of this identity runs."""
    try:
        process = psutil.Process(known["pid"])
        is_the_same = abs(process.create_time() - float(known["created"])) < SAME_START
        return is_the_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(
    known: dict[str, Any], how: signal.Signals = signal.SIGTERM, timeout: float = STOP_TIMEOUT
) -> None:
    """End the process by the signal `how`, and after `timeout` seconds by SIGKILL; then with its
    session, if it leads one. Nothing happens if it has ended."""
    for number in (how, signal.SIGKILL):
        if not is_alive(known):
            return
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL and os.getpgid(known["pid"]) == known["pid"]:
                os.killpg(known["pid"], number)
            else:
                os.kill(known["pid"], number)
        wait_for(lambda: not is_alive(known), timeout)


def wait_for(is_so: Callable[[], object], timeout: float) -> bool:
    """Wait until it is so, at most `timeout` seconds. Returns whether it is.

    A process's end is such a thing: in a container without an init a zombie keeps the pid.
    """
    deadline = time.monotonic() + timeout
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
