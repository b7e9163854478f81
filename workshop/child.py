"""Commands in a process group of their own, of which nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from loadtest.stack.stack import ROOT

#: Seconds between two looks whether it shall end, and until one that was asked to end is killed.
LOOK_EVERY = 0.2
LONGEST_END = 60.0


def run(command: str, shall_end: Callable[[], bool]) -> int:
    """Run a shell command in the project's folder until it ends, or until `shall_end` or Ctrl-C
    ends it as Ctrl-C does. Its exit code."""
    # Of its own session: Ctrl-C is for us, who pass it on once, and wait.
    child = subprocess.Popen(
        ["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while not shall_end():
            with suppress(subprocess.TimeoutExpired):
                return child.wait(LOOK_EVERY)
    except KeyboardInterrupt:
        pass
    finally:
        end(child)
    return child.returncode


def end(child: subprocess.Popen[bytes]) -> None:
    """End a command as Ctrl-C does and wait for it; Ctrl-C meanwhile changes nothing."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                child.wait(LONGEST_END)
    finally:
        kill(child.pid)
        child.wait()
        signal.signal(signal.SIGINT, before)


def kill(group: int) -> None:
    """SIGKILL to what is left of a process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
