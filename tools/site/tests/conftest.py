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
    if not MKDOCS.exists():
        why = f"{MKDOCS} is missing: make site installs it"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    folder = tmp_path_factory.mktemp("site")
    return build(folder / "site", folder / "staged")


@pytest.fixture(scope="module")  # while Playwright runs, Django refuses its database to any test
def browser() -> Iterator[Browser]:
    with launch_browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()
