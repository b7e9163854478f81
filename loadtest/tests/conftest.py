"""Fixtures of the load test's tests: servers, a copy of the project, shops, browsers and pages."""

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
from loadtest.tests.held_target import running_shop
from servers import embedded

if TYPE_CHECKING:  # without a browser, for make test-fast
    from playwright.sync_api import Browser, BrowserContext, Page

    from loadtest.stack.stack import Stack
    from loadtest.tests.browser import PageLog


@pytest.fixture(scope="package", autouse=True)
def _give_every_stack_its_own_servers() -> Iterator[None]:
    """Remove the variables that name servers, so that every stack starts its own.

    The tests of the shop share DATABASE_URL and REDIS_URL. Stacks that shared these servers would
    close each other's sales, refuse each other's fences, and continue each other's rounds.
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
    """Return the folder to which a command in this process writes its results.

    The command uses no external servers.
    """
    for name in EXTERNAL_SERVER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(embedded, "read_env", lambda: None)  # the file .env may also name servers
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
    """Start a shop that is not part of this project, and yield its address."""
    with running_shop(tmp_path_factory.mktemp("shop")) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start one Chromium for the module."""
    from loadtest.tests.browser import launch_browser

    with launch_browser() as chromium:
        yield chromium


@pytest.fixture
def page_log() -> PageLog:
    """Return an empty log, which the fixture `page` fills with requests, errors and warnings."""
    from loadtest.tests.browser import PageLog

    return PageLog()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Open one context for all pages, so that the charting library, a megabyte, is loaded once."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def page(stack: Stack, context: BrowserContext, page_log: PageLog) -> Iterator[Page]:
    """Open the shop's page. At the end, open_page() checks what the page requested and logged."""
    from loadtest.tests.demo_page import open_page

    with open_page(context, stack, page_log) as page:
        yield page
