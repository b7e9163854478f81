"""python -OO leaves docstrings and asserts out: messages have to survive that."""

import subprocess
import sys

from servers.embedded import ROOT

ERRORS = """
from locks.errors import LockBackendError, LockLost, LockNotHeld, LockTimeout
from shop import errors

assert False, "it runs with -OO, so this is not raised"
for kind in (LockBackendError, LockLost, LockNotHeld, LockTimeout):
    print(kind(name="apple"))
for kind in vars(errors).values():
    if isinstance(kind, type) and issubclass(kind, errors.ShopError):
        print(kind(seconds=1) if kind in (errors.Throttled, errors.WaitingRoomFull) else kind())
"""


def test_every_error_has_its_message_without_docstrings() -> None:
    done = subprocess.run(
        [sys.executable, "-OO", "-c", ERRORS], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert len(said) >= 4 + 12
    for line in said:
        assert line.endswith("."), line
    assert "The lock was not free in time; nothing was sold. Retry with the same key." in said
    assert len(set(said)) == len(said), "each its own"
