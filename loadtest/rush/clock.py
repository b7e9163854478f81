"""Clocks of other processes: how far one is ahead of ours, estimated from messages and answers."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


def machine() -> str:
    """Two processes with the same one have the same monotonic clock: it begins with the machine's
    start, and containers share it. A time namespace of Linux has one of its own."""
    try:
        return f"{BOOT.read_text().strip()} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return platform.node()


@dataclass
class Clock:
    """The monotonic clock of another process, compared with ours.

    offset  seconds that it is ahead of ours
    error   seconds by which `offset` may be wrong: half of the fastest message and its answer
    """

    offset: float = 0.0
    error: float = math.inf

    def compare(self, sent: float, there: float, received: float) -> None:
        """A message left at `sent`, was read there at `there`, and its answer came at `received`.
        The fastest exchange counts: it leaves least room for an error."""
        half = (received - sent) / 2
        if half < self.error:
            self.offset, self.error = there - sent - half, half
