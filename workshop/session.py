"""The events that a session waits for: typed words, saved files, commands that run."""

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

#: Seconds between two checks whether to end it, and until one that was asked to end is killed: what
#: it started would stay. PostgreSQL's first start is not interrupted: slow on a busy machine.
ENDED_EVERY = 0.2
LONGEST_END = 120.0
ENDS = ("quit", "q", "exit")
Stamp = tuple[int, int]


class Typed:
    """Lines from stdin, which a thread reads: files are watched meanwhile."""

    def __init__(self, out: Console) -> None:
        self.out = out

    @cached_property
    def _lines(self) -> Queue[str | None]:
        lines: Queue[str | None] = Queue()

        def all_of_it() -> None:
            if isinstance(sys.stdin, TextIOWrapper):
                sys.stdin.reconfigure(errors="replace")  # else a wrong byte would end this thread
            for line in sys.stdin:
                lines.put(line.strip())
            lines.put(None)

        threading.Thread(target=all_of_it, daemon=True).start()
        return lines

    def line(self, seconds: float) -> str:
        """The next line; `quit` at the end of the input. Raises Empty after this many seconds."""
        line = self._next(seconds)
        return "quit" if line is None else line

    def letter(self, prompt: str, letters: str) -> str:
        """One of these letters, asked for until it is one; empty if only Enter was typed. Raises
        EOFError at the end of the input."""
        while True:
            self.out.print(prompt, end="")
            line = self._next()
            if line is None:
                raise EOFError("no answer: nothing is kept")
            letter = line.lower()
            if letter in [""] + list(letters):
                return letter
            self.out.print(one_of(letters))

    def _next(self, seconds: float | None = None) -> str | None:
        """The next line; None at the end of the input, and whenever it is asked again then."""
        line = self._lines.get(timeout=seconds)
        if line is None:
            self._lines.put(None)
        return line


def one_of(letters: str) -> str:
    """Return the message for a letter that is no option."""
    return f"one of {', '.join(letters)}; only Enter: no idea"


class Saves:
    """Looks at the exercises in a folder. No inotify: WSL and containers have none to rely on.

    A file counts as saved when two looks in a row found it changed, the same, and not empty: an
    editor may remove it, or write it in parts.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamps_seen = self._stamps()
        self._last = dict(self._stamps_seen)

    def saved(self) -> list[Path]:
        """The files that were saved since the last call."""
        last, self._last = self._last, self._stamps()
        changed = {
            path: stamp
            for path, stamp in self._last.items()
            if stamp[1] > 0 and stamp == last.get(path) != self._stamps_seen.get(path)
        }
        self._stamps_seen |= changed
        return list(changed)

    def ignore(self, path: Path) -> None:
        """Take this file as it is: it was not saved by the participant."""
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


def run(command: str, shall_end: Callable[[], bool]) -> int:
    """Run a shell command in the project's folder until it ends, or until `shall_end` or Ctrl-C
    ends it as Ctrl-C does. Its exit code."""
    # A session begun by `make workshop` would make this a nested make, which prints its folder.
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
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        while not (interrupts or shall_end()):
            with suppress(subprocess.TimeoutExpired):
                return child.wait(ENDED_EVERY)
    finally:
        signal.signal(signal.SIGINT, before)
        with uninterrupted():
            end(child)
    return child.returncode


def end(child: subprocess.Popen[bytes]) -> None:
    """End a command as Ctrl-C does and wait for it."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(LONGEST_END)
    kill(child.pid)
    child.wait()


def kill(group: int) -> None:
    """SIGKILL to what is left of a process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
