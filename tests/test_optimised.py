"""python -OO leaves docstrings and asserts out: messages have to survive that."""

from __future__ import annotations

import subprocess
import sys

import pytest

from servers.embedded import ROOT

ERRORS = """
from locks.errors import LockBackendError, LockLost, LockNotHeld, LockTimeout
from shop import errors

assert False, "it runs with -OO, so this is not raised"
for kind in (LockBackendError, LockLost, LockNotHeld, LockTimeout):
    print(kind(name="apple"))
for kind in vars(errors).values():
    if isinstance(kind, type) and issubclass(kind, errors.ShopError):
        print(kind(seconds=1) if kind in (errors.Throttled, errors.Full) else kind())
"""


def optimised(*command: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-OO", *command], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_every_error_says_what_it_says_without_docstrings() -> None:
    said = optimised("-c", ERRORS)
    assert len(said) >= 4 + 12
    for line in said:
        assert line.endswith("."), line
    assert "The lock was not free in time; nothing was sold. Ask again with the same key." in said
    assert len(set(said)) == len(said), "each its own"


@pytest.mark.parametrize("module", ["loadtest", "locks.bench"])
def test_help_is_printed_without_docstrings(module: str) -> None:
    assert optimised("-m", module, "--help")[0].startswith("usage: ")
