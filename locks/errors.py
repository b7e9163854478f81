"""How a lock can fail, how a lease can end, and the hooks that count both."""

import logging
from enum import StrEnum
from typing import Any

logger = logging.getLogger(__name__)


class LockError(Exception):
    """A lock could not do what was asked of it."""

    #: What it says unless a message is given. Not the docstring, which python -OO leaves out.
    text = "The lock could not do what was asked of it."

    def __init__(self, message: str | None = None, *, name: str = "") -> None:
        self.name = name
        text = message or self.text
        super().__init__(f"{name}: {text}" if name else text)


class LockTimeout(LockError, TimeoutError):
    """The lock was not free within the wait."""

    text = "The lock was not free within the wait. Ask again later, or wait longer."


class LockLost(LockError):
    """The lease passed its deadline, or somebody else holds the lock."""

    text = "The lease can no longer be trusted. Roll back and start again with a new one."


class LockNotHeld(LockError):
    """A lease was released twice, or used in another process than its own."""

    text = "This lease is not held here. Release it once, in the process that acquired it."


class LockBackendError(LockError):
    """The lock server was not reached, or refused."""

    text = "The lock server did not answer. Nothing may be assumed about who holds the lock."


class Release(StrEnum):
    """What a release found."""

    RELEASED = "released"  # the lock was ours, and is free now
    EXPIRED = "expired"  # the lock was no longer ours; nothing was touched
    UNKNOWN = "unknown"  # the server did not answer; the lock is free at the latest after its ttl
    HANDED_OVER = "handed over"  # not released: another process may adopt the lease


class LossReason(StrEnum):
    """How a lease was lost."""

    GONE = "gone"  # the server has no such lock any more: deleted, evicted, restarted empty
    TAKEN = "taken"  # the server says that somebody else holds the lock
    EXPIRED = "expired"  # the deadline passed: the server was not reached, or we were paused
    MAX_HOLD = "max_hold"  # held for longer than allowed, and not renewed any more


class Metrics:
    """Called by RedisLock(metrics=...), in whichever thread it happens. Seconds throughout.

    An exception that one of these raises is logged and goes no further.
    """

    def waited(self, name: str, seconds: float, acquired: bool) -> None:
        """An acquire is over; not acquired: the wait was over first, or it failed."""

    def held(self, name: str, seconds: float, outcome: Release) -> None:
        """A lease was released, with this outcome."""

    def renewed(self, name: str, seconds: float) -> None:
        """A lease was renewed; the round trip took so long."""

    def lost(self, name: str, loss: LossReason) -> None:
        """A lease was lost."""


def emit(metrics: Metrics | None, event: str, *values: Any) -> None:
    """Call the hook named `event`, if there are hooks."""
    if metrics is None:
        return
    try:
        getattr(metrics, event)(*values)
    except Exception:
        logger.exception("the hook %s failed", event)
