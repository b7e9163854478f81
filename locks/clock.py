"""The clock that all deadlines are measured with."""

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Return seconds since an arbitrary moment; setting the wall clock does not change it.

        The clock runs on while the machine is suspended, which time.monotonic() does not on Linux:
        a laptop that wakes up trusts no lease of the day before.
        """
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    now = time.monotonic
