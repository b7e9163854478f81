"""Fixtures: the site, built once for all tests of a process, and a browser with an empty page."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from loadtest.tests.browser import launch_browser
from tools.site.__main__ import MKDOCS, build

#: The sizes of the windows of a phone and of a desktop, in pixels.
PHONE: ViewportSize = {"width": 390, "height": 844}
DESKTOP: ViewportSize = {"width": 1280, "height": 900}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, and return its folder. Without MkDocs, CI fails and other runs skip."""
    if not MKDOCS.exists():
        problem = f"{MKDOCS} is missing: `make site` installs it"
        if os.environ.get("CI"):
            pytest.fail(problem)
        pytest.skip(problem)
    folder = tmp_path_factory.mktemp("site")
    return build(folder / "site", folder / "staged")


# The browser is started for each module, not for the session, because Django refuses queries in
# this process while Playwright runs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_browser() as launched_browser:
        yield launched_browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Return an empty page in a window of a desktop's size."""
    context = browser.new_context(viewport=DESKTOP)
    yield context.new_page()
    context.close()


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    """Return an empty page in a window of a phone's size, with a touch screen."""
    context = browser.new_context(viewport=PHONE, has_touch=True)
    yield context.new_page()
    context.close()
