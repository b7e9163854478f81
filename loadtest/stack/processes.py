"""Processes of this machine, and the processor time that they have taken."""

from __future__ import annotations

import psutil

#: What processors do when they compute, as psutil calls it. A guest's time is in `user`.
COMPUTING = ("user", "nice", "system", "irq", "softirq")


def family(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it. Raises psutil.NoSuchProcess."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def seconds_of(process: psutil.Process) -> float:
    """Processor seconds that a process has taken so far, without its children's. Raises
    psutil.Error."""
    return float(sum(process.cpu_times()[:2]))


def seconds_of_machine() -> float:
    """Processor seconds that all programs of this machine have taken so far."""
    times = psutil.cpu_times()
    return float(sum(getattr(times, name, 0.0) for name in COMPUTING))
