from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loadtest.commands import output
from loadtest.commands.faults import EXTERNAL_SERVER_VARIABLES, THREADS_PER_NODE
from loadtest.faults.testbed import Testbed
from loadtest.tests.checkout import fresh_copy
from loadtest.tests.held_target import cart_shop
from servers import embedded

if TYPE_CHECKING:  # without a browser, for make test-fast
    from playwright.sync_api import Browser, BrowserContext, Page

    from loadtest.stack.stack import Stack
    from loadtest.tests.browser import Watched


@pytest.fixture(scope="package", autouse=True)
def _every_stack_has_servers_of_its_own() -> Iterator[None]:
    """The tests of the shop share DATABASE_URL and REDIS_URL. Stacks with one database would refuse
    each other's fences and close each other's sales. With one Redis, the page of a stack would show
    the round of steps that another module's stack left there, and take its steps in it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in EXTERNAL_SERVER_VARIABLES:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def clone() -> Iterator[Path]:
    """A copy of the project, in a folder whose name a shell would take apart. One for each module:
    initdb and the migrations take longer than a demo.

    Not in tmp_path: other pytest runs tidy up there.
    """
    with tempfile.TemporaryDirectory(prefix='oversold clone\'s "$HOME" ü-') as folder:
        yield fresh_copy(Path(folder).resolve())


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The results of a command in this process, which uses no server that it did not start."""
    for name in EXTERNAL_SERVER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    monkeypatch.setattr(output, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Real servers to make faults on."""
    with (
        (tmp_path_factory.mktemp("testbed") / "log").open("wb") as log,
        Testbed(log=log, threads=THREADS_PER_NODE) as testbed,
    ):
        yield testbed


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a shop that is not ours."""
    with cart_shop(tmp_path_factory.mktemp("shop")) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from loadtest.tests.browser import launched

    with launched() as running:
        yield running


@pytest.fixture
def watched() -> Watched:
    from loadtest.tests.browser import Watched

    return Watched()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One cache for all pages: the charting library is a megabyte."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def page(stack: Stack, context: BrowserContext, watched: Watched) -> Iterator[Page]:
    """The shop's page, of the module's `stack`."""
    from loadtest.tests.demo_page import opened

    with opened(context, stack, watched) as page:
        yield page
