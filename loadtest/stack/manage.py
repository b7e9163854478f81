"""Runs manage.py for a stack."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import IO

from loadtest.stack.node import StackError
from servers.embedded import ROOT


def manage(*words: str, environment: Mapping[str, str], log: IO[bytes]) -> None:
    """Run `manage.py` with these words and wait for it. Raises StackError where it fails."""
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    if done.returncode:
        raise StackError(f"manage.py {words[0]} failed; see {log.name}")
