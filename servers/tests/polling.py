"""Waits for a condition that nothing announces."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], *, what: str, timeout: float = 15.0) -> None:
    """Wait until the condition holds; fail with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not so after {timeout:g} s: {what}"
        time.sleep(0.01)
