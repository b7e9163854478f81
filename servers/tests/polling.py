"""Waiting for a condition, with an assertion that it holds in time."""

from collections.abc import Callable

from servers.waiting import wait_for


def eventually(condition: Callable[[], object], *, what: str, timeout: float = 15.0) -> None:
    """Wait until the condition holds; fail with `what` after `timeout` seconds."""
    assert wait_for(condition, timeout), f"waited {timeout:g} s in vain until {what}"
