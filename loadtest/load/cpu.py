"""The processor time of processes and of all that they started."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import psutil

from loadtest.stack.processes import family, seconds_of, seconds_of_machine

#: Elsewhere the time of children that have ended is not kept, and others' processes are not shown:
#: the sum would be too small, and nobody would see it.
IS_KNOWN = sys.platform.startswith("linux")


def seconds(pids: Sequence[int]) -> float | None:
    """Processor seconds so far of these processes, their descendants, and those of them that ended.

    None where they cannot be read, or there is no process: unknown, and never 0.
    """
    if not (IS_KNOWN and pids):
        return None
    try:
        return sum(_of(process) for pid in pids for process in family(pid))
    except psutil.Error:
        return None


def of_machine() -> float | None:
    """Processor seconds so far of all programs of this machine. None where they are unknown."""
    return seconds_of_machine() if IS_KNOWN else None


def busiest(pid: int, before: dict[int, float]) -> tuple[float | None, dict[int, float]]:
    """The most processor seconds that a process of this tree took since `before`, and the seconds
    of each by now."""
    if not IS_KNOWN:
        return None, {}
    try:
        now = {process.pid: seconds_of(process) for process in family(pid)}
    except psutil.Error:
        return None, {}
    taken = [spent - before.get(one, 0.0) for one, spent in now.items()]
    return max(taken, default=None), now


def _of(process: psutil.Process) -> float:
    """Its own time and that of its children that have ended; 0 for one that ends just now, for its
    parent has its time then."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system + times.children_user + times.children_system
