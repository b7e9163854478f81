from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.tests.checkout import fresh_copy


@pytest.fixture
def clone() -> Iterator[Path]:
    """A fresh copy of the project. Not in tmp_path: other pytest runs tidy up there."""
    with tempfile.TemporaryDirectory(prefix="oversold-clone-") as folder:
        yield fresh_copy(Path(folder))
