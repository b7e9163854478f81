"""The site, built once for all tests, and a browser that opens it from its folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from loadtest.tests.browser import launch_browser
from tools.site.__main__ import MKDOCS, build


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, and return its folder. Without MkDocs, fail in CI and skip elsewhere."""
    if not MKDOCS.exists():
        problem = f"{MKDOCS} is missing: `make site` installs it"
        if os.environ.get("CI"):
            pytest.fail(problem)
        pytest.skip(problem)
    folder = tmp_path_factory.mktemp("site")
    return build(folder / "site", folder / "staged")


# Started for each module, not for the session: while Playwright runs, Django refuses queries in
# every test of this process.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_browser() as launched_browser:
        yield launched_browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Return an empty page in a new window of a desktop's size."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()
