"""The events that a session waits for: typed lines, saved files, and the end of a command."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from io import TextIOWrapper
from pathlib import Path
from queue import Queue

from rich.console import Console

from loadtest.stack.stack import ROOT
from servers.signals import uninterrupted

#: Seconds between two checks whether a running command is to end.
POLL_INTERVAL_SECONDS = 0.2
#: Seconds until a command that was interrupted is killed. It is long, because a killed command
#: leaves its servers behind, and the first start of PostgreSQL cannot be interrupted. On a busy
#: machine that start is slow.
END_TIMEOUT_SECONDS = 120.0
QUIT_COMMANDS = ("quit", "q", "exit")
#: Modification time in nanoseconds, and size in bytes.
Stamp = tuple[int, int]


class TypedLines:
    """Lines from stdin, read by a thread, so that the session can watch files meanwhile."""

    def __init__(self, out: Console) -> None:
        self.out = out

    @cached_property
    def _lines(self) -> Queue[str | None]:
        lines: Queue[str | None] = Queue()

        def read_stdin() -> None:
            if isinstance(sys.stdin, TextIOWrapper):
                sys.stdin.reconfigure(errors="replace")  # an invalid byte must not end this thread
            for line in sys.stdin:
                lines.put(line.strip())
            lines.put(None)

        threading.Thread(target=read_stdin, daemon=True).start()
        return lines

    def line(self, seconds: float) -> str:
        """Return the next line, or `quit` at the end of the input.

        Raises Empty if no line comes within `seconds`.
        """
        line = self._next(seconds)
        return "quit" if line is None else line

    def letter(self, prompt: str, letters: str) -> str:
        """Ask until one of these letters or only Enter is typed; return the letter, or "".

        Raises EOFError at the end of the input.
        """
        while True:
            self.out.print(prompt, end="")
            line = self._next()
            if line is None:
                raise EOFError("no answer: nothing is kept")
            letter = line.lower()
            if letter in [""] + list(letters):
                return letter
            self.out.print(describe_choices(letters))

    def _next(self, seconds: float | None = None) -> str | None:
        """Return the next line, or None at the end of the input and in every later call.

        Raises Empty if no line comes within `seconds`; None: wait without a limit.
        """
        line = self._lines.get(timeout=seconds)
        if line is None:
            self._lines.put(None)
        return line


def describe_choices(letters: str) -> str:
    """Return the message for an answer that is not one of these letters."""
    return f"type one of {', '.join(letters)}; only Enter: no idea"


class SaveWatcher:
    """Notices which exercises in a folder were saved, by polling.

    inotify is not reliable under WSL and in containers. An editor may remove a file first, or write
    it in parts: so a file counts as saved once two polls in a row see the same new, non-empty file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamps_seen = self._stamps()
        self._last_stamps = dict(self._stamps_seen)

    def find_saved_files(self) -> list[Path]:
        """Poll the folder, and return the files that have been saved, each save once."""
        previous_stamps = self._last_stamps
        self._last_stamps = self._stamps()
        saved_files = []
        for path, stamp in self._last_stamps.items():
            _, size = stamp
            is_complete = size > 0 and stamp == previous_stamps.get(path)
            if is_complete and stamp != self._stamps_seen.get(path):
                self._stamps_seen[path] = stamp
                saved_files.append(path)
        return saved_files

    def ignore(self, path: Path) -> None:
        """Do not report the present state of this file: the participant did not save it."""
        self._stamps_seen.pop(path, None)
        with suppress(OSError):
            self._stamps_seen[path] = _stamp(path)

    def _stamps(self) -> dict[Path, Stamp]:
        stamps = {}
        for path in self._folder.glob("ex*.py"):
            with suppress(OSError):  # removed since it was listed
                stamps[path] = _stamp(path)
        return stamps


def _stamp(path: Path) -> Stamp:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def never() -> bool:
    """Return False."""
    return False


def run(command: str, should_end: Callable[[], bool] = never) -> int:
    """Run a shell command in the project's folder, and return its exit code.

    It is interrupted by Ctrl-C, and once `should_end`, which is polled, returns True.
    """
    # Without MAKELEVEL, a make below `make workshop` does not print the folder that it enters.
    environment = {name: value for name, value in os.environ.items() if name != "MAKELEVEL"}
    # In its own session: this process gets Ctrl-C, passes it on once, and waits.
    child = subprocess.Popen(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    interrupts: list[int] = []
    previous_handler = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        while not (interrupts or should_end()):
            with suppress(subprocess.TimeoutExpired):
                return child.wait(POLL_INTERVAL_SECONDS)
    finally:
        signal.signal(signal.SIGINT, previous_handler)
        with uninterrupted():
            end(child)
    return child.returncode


def end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a command that still runs, as Ctrl-C does, and wait for its end."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(END_TIMEOUT_SECONDS)
    kill(child.pid)
    child.wait()


def kill(group: int) -> None:
    """Send SIGKILL to the remaining processes of a group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
