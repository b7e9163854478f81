"""Exceptions have their messages under python -OO, too, which removes docstrings and asserts."""

import subprocess
import sys

from servers.embedded import ROOT

#: Number of error classes that PRINT_MESSAGES takes from `locks`.
LOCK_ERROR_COUNT = 4
#: A lower bound of the number of error classes in shop/errors.py.
MIN_SHOP_ERROR_COUNT = 12
#: A program that prints the message of every error class, one on each line.
PRINT_MESSAGES = """
from locks.errors import LockBackendError, LockLost, LockNotHeld, LockTimeout
from shop import errors

assert False, "-OO removes this assertion"
for error_class in (LockBackendError, LockLost, LockNotHeld, LockTimeout):
    print(error_class(name="apple"))
for error_class in vars(errors).values():
    if isinstance(error_class, type) and issubclass(error_class, errors.ShopError):
        needs_seconds = error_class in (errors.Throttled, errors.WaitingRoomFull)
        print(error_class(seconds=1) if needs_seconds else error_class())
"""


def test_errors_have_messages_without_docstrings() -> None:
    """`python -OO` removes docstrings, so an error class must not take its message from one."""
    completed = subprocess.run(
        [sys.executable, "-OO", "-c", PRINT_MESSAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    messages = completed.stdout.splitlines()
    assert len(messages) >= LOCK_ERROR_COUNT + MIN_SHOP_ERROR_COUNT
    for message in messages:
        assert message.endswith("."), message
    assert "The lock was not free in time; nothing was sold. Retry with the same key." in messages
    assert len(set(messages)) == len(messages), "each error has a different message"
