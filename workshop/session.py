"""The events that a session waits for: typed lines, saved files and the end of a command."""

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

#: Time between two checks of whether a running command should be ended.
COMMAND_POLL_INTERVAL_SECONDS = 0.2
#: Time until a command that was interrupted is killed. The time is long, because a killed command
#: leaves its servers behind, and because the first start of PostgreSQL cannot be interrupted and
#: is slow on a busy machine.
END_TIMEOUT_SECONDS = 120.0
QUIT_COMMANDS = ("quit", "q", "exit")
#: The state of a file: its modification time in nanoseconds, and its size in bytes.
Stamp = tuple[int, int]


class TypedLines:
    """The lines that the participant types. A thread reads them while the session watches files."""

    def __init__(self, out: Console) -> None:
        self.out = out

    @cached_property
    def _lines(self) -> Queue[str | None]:
        """The lines not yet returned; None is the end of stdin.

        The first use of this property starts the thread that reads stdin.
        """
        lines: Queue[str | None] = Queue()

        def read_stdin() -> None:
            if isinstance(sys.stdin, TextIOWrapper):
                sys.stdin.reconfigure(errors="replace")  # an invalid byte must not end this thread
            for line in sys.stdin:
                lines.put(line.strip())
            lines.put(None)

        threading.Thread(target=read_stdin, daemon=True).start()
        return lines

    def read_line(self, timeout_seconds: float) -> str:
        """Return the next line, or `quit` at the end of the input.

        Raises queue.Empty if no line is typed within `timeout_seconds`.
        """
        line = self._take_line(timeout_seconds)
        return "quit" if line is None else line

    def ask_letter(self, prompt: str, letters: str) -> str:
        """Ask until one of these letters is typed, and return it. For Enter alone return "".

        Raises EOFError at the end of the input.
        """
        while True:
            self.out.print(prompt, end="")
            line = self._take_line()
            if line is None:
                raise EOFError("the input ended without an answer, so no answer is kept")
            letter = line.lower()
            if letter == "" or letter in list(letters):  # the string "abcd" would contain "ab"
                return letter
            self.out.print(describe_choices(letters))

    def _take_line(self, timeout_seconds: float | None = None) -> str | None:
        """Return the next line, or None at the end of the input.

        Raises queue.Empty if no line is typed within `timeout_seconds`.

        timeout_seconds  None: wait without a limit
        """
        line = self._lines.get(timeout=timeout_seconds)
        if line is None:
            self._lines.put(None)  # so that later calls return None, too
        return line


def describe_choices(letters: str) -> str:
    """Return the message for an answer that is not one of these letters."""
    return f"type one of {', '.join(letters)}; only Enter: no idea"


class SaveWatcher:
    """Polls a folder, to notice which exercises in it were saved.

    It does not use inotify, which is not reliable under WSL and in containers. An editor may remove
    a file before it writes the new one, or write it in parts. So a file counts as saved when two
    polls in a row see the same new, non-empty file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # A stamp is a file's modification time and size.
        self._last_stamps = self._read_stamps()
        # The stamp of each file when it was last reported or ignored.
        self._handled_stamps = dict(self._last_stamps)

    def find_saved_files(self) -> list[Path]:
        """Poll the folder, and return the saved files. Each save is returned once.

        A file counts as saved if it is not empty, and has not changed since the previous poll. A
        change is noticed by the file's stamp: its modification time and its size.
        """
        previous_stamps = self._last_stamps
        self._last_stamps = self._read_stamps()
        saved_files = []
        for path, stamp in self._last_stamps.items():
            _, size = stamp
            is_complete = size > 0 and stamp == previous_stamps.get(path)
            if is_complete and stamp != self._handled_stamps.get(path):
                self._handled_stamps[path] = stamp
                saved_files.append(path)
        return saved_files

    def ignore(self, path: Path) -> None:
        """Do not report the current state of this file, because the participant did not save it."""
        self._handled_stamps.pop(path, None)
        with suppress(OSError):  # if the file does not exist
            self._handled_stamps[path] = _read_stamp(path)

    def _read_stamps(self) -> dict[Path, Stamp]:
        """Return the stamp of each exercise in the folder."""
        stamps = {}
        for path in self._folder.glob("ex*.py"):
            with suppress(OSError):  # if the file was removed since it was listed
                stamps[path] = _read_stamp(path)
        return stamps


def _read_stamp(path: Path) -> Stamp:
    """Return a file's modification time in nanoseconds, and its size in bytes."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def run_shell_command(command: str, should_end: Callable[[], bool] = lambda: False) -> int:
    """Run a shell command in the project's folder, and return its exit code.

    Ctrl-C interrupts the command. It is also interrupted once `should_end`, which is called
    repeatedly, returns True. If a signal ended the command, the exit code is negative.
    """
    # With MAKELEVEL, which `make workshop` sets, another make would print the folder it enters.
    environment = {name: value for name, value in os.environ.items() if name != "MAKELEVEL"}
    # The command runs in a new session, so that Ctrl-C reaches only this process. This process
    # interrupts the command once and waits for its end.
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
                return child.wait(COMMAND_POLL_INTERVAL_SECONDS)
    finally:
        signal.signal(signal.SIGINT, previous_handler)
        with uninterrupted():
            _end_command(child)
    return child.returncode


def _end_command(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a command that still runs, as Ctrl-C does, and wait for its end.

    After END_TIMEOUT_SECONDS the command is killed. Processes that it left behind are killed, too.
    """
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(END_TIMEOUT_SECONDS)
    kill_process_group(child.pid)
    child.wait()


def kill_process_group(leader_pid: int) -> None:
    """Send SIGKILL to the remaining processes of the group that this process leads, if any."""
    # macOS reports PermissionError for a group of which only zombies remain.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)
