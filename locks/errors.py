"""What can go wrong with a lock.

LockError
├── LockTimeout       the wait was over before the lock was free
├── LockLost          the lease passed its deadline, or somebody else holds the lock
├── LockNotHeld       misuse: released twice, or used in another process
└── LockBackendError  the lock server could not be asked, or its answer was lost
"""

from __future__ import annotations


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
