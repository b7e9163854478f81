"""The clock of all deadlines. Docstrings call it our clock, as opposed to the server's."""

import time
from collections.abc import Callable
from functools import partial

#: Return the seconds since an arbitrary moment. Setting the wall clock does not change them. On
#: Linux CLOCK_BOOTTIME, unlike time.monotonic(), goes on while the machine is suspended, so that a
#: laptop that wakes up trusts no lease from before its sleep.
now: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
