"""The clock by which a lease is trusted."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds from an unknown moment on; the wall clock does not move it.

        It runs on while the machine is suspended, which time.monotonic() does not on Linux: a
        laptop that wakes up trusts no lease of the day before.
        """
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    now = time.monotonic
