"""The site, built once for all tests, and a browser that opens it from its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from tests.tooling import tool

from loadtest.tests.browser import launched
from tools.site.__main__ import build


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tool("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    return build(folder / "site", folder / "staged")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()
