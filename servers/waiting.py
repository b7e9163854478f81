"""Waiting for a condition by polling it."""

import time
from collections.abc import Callable

#: Seconds between two evaluations of the condition.
POLL_INTERVAL_SECONDS = 0.01


def wait_for(condition: Callable[[], object], timeout: float) -> bool:
    """Wait until the condition holds, for at most `timeout` seconds. Return whether it holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL_SECONDS)
    return True
