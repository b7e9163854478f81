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
def _every_stack_has_servers_of_its_own() -> Iterator[None]:
    """The tests of the shop share DATABASE_URL and REDIS_URL. Stacks with one database would refuse
    each other's fences and close each other's sales. With one Redis, the page of a stack would show
    the round of steps that another module's stack left there, and take its steps in it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DATABASE_URL", "REDIS_URL"):
            patch.delenv(name, raising=False)
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
