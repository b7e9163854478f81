"""Errors keep their messages under python -OO, which removes docstrings and asserts."""

import subprocess
import sys

from servers.embedded import ROOT

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
    """`python -OO` removes docstrings, so no message may be taken from one."""
    completed = subprocess.run(
        [sys.executable, "-OO", "-c", PRINT_MESSAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    messages = completed.stdout.splitlines()
    # 4 errors of locks, and at least 12 of the shop.
    assert len(messages) >= 4 + 12
    for message in messages:
        assert message.endswith("."), message
    assert "The lock was not free in time; nothing was sold. Retry with the same key." in messages
    assert len(set(messages)) == len(messages), "each error has a different message"
