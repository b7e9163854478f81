"""Fixtures for the tests of the load test: servers, a copy of the project, shops and browsers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loadtest.commands import output
from loadtest.commands.faults import EXTERNAL_SERVER_VARIABLES, THREADS_PER_NODE
from loadtest.faults.testbed import Testbed
from loadtest.tests.checkout import copy_project
from loadtest.tests.held_target import run_shop
from servers import embedded

if TYPE_CHECKING:  # only here, because `make test-fast` runs without Playwright
    from playwright.sync_api import Browser, BrowserContext, Page

    from loadtest.stack.stack import Stack
    from loadtest.tests.browser import PageLog


@pytest.fixture(scope="package", autouse=True)
def _give_every_stack_its_own_servers() -> Iterator[None]:
    """Remove the environment variables that name servers, so that every stack starts its own.

    The tests of the shop share the servers of DATABASE_URL and REDIS_URL. If several stacks shared
    them, one would close the sales of another and change the state of its page, and its fences
    would be higher than those of the other, which the database would then refuse.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in EXTERNAL_SERVER_VARIABLES:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def clone() -> Iterator[Path]:
    """Copy the project into a folder whose name has to be quoted in a shell.

    There is one copy for each module, because initdb and the migrations take longer than a demo.
    The copy is not in tmp_path, where other pytest runs remove old folders.
    """
    with tempfile.TemporaryDirectory(prefix='oversold clone\'s "$HOME" ü-') as folder:
        yield copy_project(Path(folder).resolve())


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Redirect the results of commands that run in this process to a folder, and return the folder.

    These commands use no external servers.
    """
    for name in EXTERNAL_SERVER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    # The file .env may contain addresses of external servers, too, so it is not read.
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    monkeypatch.setattr(output, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Start the servers and the nodes that `make faults` starts, for all tests of a module."""
    with (
        (tmp_path_factory.mktemp("testbed") / "log").open("wb") as log,
        Testbed(log=log, threads=THREADS_PER_NODE) as testbed,
    ):
        yield testbed


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a CartShop, which stands for a third-party shop, and yield its address."""
    with run_shop(tmp_path_factory.mktemp("shop")) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start one Chromium for the module."""
    from loadtest.tests.browser import launch_browser

    with launch_browser() as chromium:
        yield chromium


@pytest.fixture
def page_log() -> PageLog:
    """Return an empty log, to which the fixture `page` adds its requests, errors and warnings."""
    from loadtest.tests.browser import PageLog

    return PageLog()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Open one context for all pages of a module.

    So the charting library, which has a megabyte, is loaded only once.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def page(stack: Stack, context: BrowserContext, page_log: PageLog) -> Iterator[Page]:
    """Open the shop's page. At the end, check what it requested and logged, as open_page() does."""
    from loadtest.tests.demo_page import open_page

    with open_page(context, stack, page_log) as page:
        yield page
