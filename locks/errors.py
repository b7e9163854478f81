"""The exceptions of the locks, the outcomes of a lease, and the hooks that count them.

    Exception
    +-- LockError
    |   +-- LockTimeout        (also one_file.LockTimeout, a TimeoutError)
    |   +-- LockLost           (also one_file.LockLost)
    |   +-- LockNotHeld
    |   +-- LockBackendError

`except one_file.LockTimeout` and `except one_file.LockLost` also catch those of the other locks.
"""

from enum import StrEnum

from . import one_file


class LockError(Exception):
    """An operation on a lock failed.

    Attributes:
        name: The name of the lock, or an empty string.
        text: The default message. It repeats the docstring, which `python -OO` removes.
    """

    text = "An operation on a lock failed."

    def __init__(self, message: str | None = None, *, name: str = "") -> None:
        """Make the exception.

        Args:
            message: What is wrong. None: the attribute `text` of the class.
            name: The name of the lock, with which the message begins.
        """
        self.name = name
        text = message or self.text
        super().__init__(f"{name}: {text}" if name else text)


class LockTimeout(LockError, one_file.LockTimeout):
    """The lock was not free within the wait. Try again later, or wait longer."""

    text = "The lock was not free within the wait. Try again later, or wait longer."


class LockLost(LockError, one_file.LockLost):
    """The lease can no longer be trusted. Roll back and start again with a new one."""

    text = "The lease can no longer be trusted. Roll back and start again with a new one."


class LockNotHeld(LockError):
    """This lease is not held here. Release it once, in the process that acquired it."""

    text = "This lease is not held here. Release it once, in the process that acquired it."


class LockBackendError(LockError):
    """The server refused a command or did not answer. Assume nothing about the lock's holder."""

    text = "The server refused a command or did not answer. Assume nothing about the lock's holder."


class Release(StrEnum):
    """The outcome of a release."""

    RELEASED = "released"  # the lock was ours and was released
    EXPIRED = "expired"  # the lock was no longer ours; nothing was changed
    UNKNOWN = "unknown"  # no reply came; the ttl ends the lock at the latest
    HANDED_OVER = "handed over"  # not released: another process may adopt the lease


class LossReason(StrEnum):
    """The reason why a lease was lost."""

    GONE = "gone"  # the lock is free on the server: it expired, was deleted, or the data was lost
    TAKEN = "taken"  # the server says that another token has the lock
    # The deadline passed: the server was unreachable, this process was paused, or the lease is not
    # renewed. check() also gives this reason for a lease that reached max_hold.
    EXPIRED = "expired"
    MAX_HOLD = "max_hold"  # the watchdog noticed the end of a lease that reached max_hold


class Metrics:
    """Hooks that a lock calls, for counters and histograms. Override those that you need.

    `waited` and `held` are called in the thread that acquires or releases the lock, `renewed` in
    the thread that renews the leases, and `lost` in another thread, which also calls on_lost. With
    asyncio all are called in the event loop's thread. An exception that a hook raises is logged and
    not passed on.
    """

    def waited(self, name: str, seconds: float, acquired: bool) -> None:
        """Count an attempt to acquire that ended, successfully or not.

        Args:
            name: The name of the lock.
            seconds: Seconds that the attempt took.
            acquired: False if the wait timed out or an error ended the attempt.
        """

    def held(self, name: str, seconds: float, outcome: Release) -> None:
        """Count a lease that was released or handed over.

        This hook is called for each release() that returns. release() may be called again after
        the outcome UNKNOWN, so a lease may be counted twice.

        Args:
            name: The name of the lock.
            seconds: Seconds for which the lease was held.
            outcome: The outcome of the release, or HANDED_OVER.
        """

    def renewed(self, name: str, seconds: float) -> None:
        """Count a renewal.

        Args:
            name: The name of the lock.
            seconds: Seconds that the round trip took.
        """

    def lost(self, name: str, loss: LossReason) -> None:
        """Count a lease that was lost.

        Args:
            name: The name of the lock.
            loss: Why the lease was lost.
        """
