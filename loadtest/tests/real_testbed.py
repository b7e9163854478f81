"""A testbed with real servers, for tests that make faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest.commands import faults as command
from loadtest.faults.testbed import Testbed


@contextmanager
def real_testbed(folder: Path, *, threads: int) -> Iterator[Testbed]:
    """Its nodes have that many threads. It uses no server of the environment; its log is in the
    folder."""
    with pytest.MonkeyPatch.context() as patch:
        for name in command.EXTERNAL:
            patch.delenv(name, raising=False)
        with (
            (folder / "log").open("wb") as file,
            Testbed(log=file, progress=lambda step: None, threads=threads) as testbed,
        ):
            yield testbed
