"""Waiting for a condition by polling it."""

import time
from collections.abc import Callable

#: Seconds between two evaluations of the condition.
POLL_INTERVAL_SECONDS = 0.01


def wait_for(condition: Callable[[], object], timeout: float) -> bool:
    """Wait until the condition holds, for at most `timeout` seconds. Return whether it holds.

    A condition for the end of a process must treat a zombie as ended: in a container without an
    init process, a zombie keeps its pid forever.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL_SECONDS)
    return True
