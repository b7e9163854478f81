"""Commands in a process group of their own, of which nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from loadtest.stack.stack import ROOT
from servers.signals import uninterrupted

#: Seconds between two checks whether to end it, and until one that was asked to end is killed.
LOOK_EVERY = 0.2
LONGEST_END = 60.0


def run(command: str, shall_end: Callable[[], bool]) -> int:
    """Run a shell command in the project's folder until it ends, or until `shall_end` or Ctrl-C
    ends it as Ctrl-C does. Its exit code."""
    # Of its own session: Ctrl-C is for us, who pass it on once, and wait.
    child = subprocess.Popen(
        ["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True
    )
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        while not (asked or shall_end()):
            with suppress(subprocess.TimeoutExpired):
                return child.wait(LOOK_EVERY)
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
