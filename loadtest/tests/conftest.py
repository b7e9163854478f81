from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loadtest.tests.checkout import fresh_copy

if TYPE_CHECKING:  # without a browser, for make test-fast
    from playwright.sync_api import Browser

    from loadtest.tests.browser import Watched


@pytest.fixture(scope="package", autouse=True)
def _every_stack_has_a_database_of_its_own() -> Iterator[None]:
    """The tests of the shop share DATABASE_URL. Stacks side by side, each with its own Redis,
    would refuse each other's fences and close each other's sales."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        yield


@pytest.fixture
def clone() -> Iterator[Path]:
    """A fresh copy of the project, in a folder whose name a shell would take apart.

    Not in tmp_path: other pytest runs tidy up there.
    """
    with tempfile.TemporaryDirectory(prefix='oversold clone\'s "$HOME" ü-') as folder:
        yield fresh_copy(Path(folder))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from loadtest.tests.browser import launched

    with launched() as running:
        yield running


@pytest.fixture
def watched() -> Watched:
    from loadtest.tests.browser import Watched

    return Watched()
