"""The clock that all deadlines are measured with."""

import time
from collections.abc import Callable
from functools import partial

#: Return seconds since an arbitrary moment; setting the wall clock does not change it. Where the
#: system has CLOCK_BOOTTIME, the clock runs on while the machine is suspended, which
#: time.monotonic() does not on Linux: a laptop that wakes up trusts no lease of the day before.
now: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
