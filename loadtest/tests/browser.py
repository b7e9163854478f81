"""A real browser for tests: Debian's Chromium, driven by Playwright."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tools.screenshots import CHROMIUM_ARGUMENTS, find_chromium

expect.set_options(timeout=20_000)  # milliseconds: a browser on a busy machine
CHROMIUM_MISSING_MESSAGE = "Chromium is not installed: apt-get install chromium"


def require_chromium() -> str:
    """Return the path of Chromium. Without it the test fails in CI, and is skipped elsewhere."""
    browser_path = find_chromium()
    if browser_path is None:
        if os.environ.get("CI"):
            pytest.fail(CHROMIUM_MISSING_MESSAGE)
        pytest.skip(CHROMIUM_MISSING_MESSAGE)
    return browser_path


@contextmanager
def launch_browser(*arguments: str) -> Iterator[Browser]:
    """Start Chromium without a window, with CHROMIUM_ARGUMENTS and these further arguments."""
    chromium_path = require_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path, args=[*CHROMIUM_ARGUMENTS, *arguments]
        )
        yield browser
        browser.close()


@dataclass
class PageLog:
    """The hosts to which a page sent requests, and the errors and warnings that it logged.

    hosts              the hosts that received requests
    complaints         the errors and warnings that the page logged
    provoked_statuses  status codes of refusals that the test provokes; they are not added to
                       `complaints`, although Chromium logs every refusal as an error
    """

    hosts: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    provoked_statuses: set[int] = field(default_factory=set)

    def watch(self, page: Page) -> None:
        """Record the requests, errors and warnings of this page from now on."""
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname or ""))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._add_console_message)

    def _add_console_message(self, message: ConsoleMessage) -> None:
        """Add an error or a warning to `complaints`, unless it is about a refusal that is provoked.

        Chromium logs a refusal as "... the server responded with a status of 409 (Conflict)".
        """
        is_provoked = any(
            f"status of {status} " in message.text for status in self.provoked_statuses
        )
        if message.type in ("error", "warning") and not is_provoked:
            self.complaints.append(message.text)


def assert_accessible(page: Page, width: int) -> None:
    """Assert that the page is accessible and not wider than `width` pixels.

    The page is accessible if the tool axe finds no violation of high impact.
    """
    axe_violations = Axe().run(page).response["violations"]
    serious_violations = [
        (violation["id"], violation["nodes"][0]["html"])
        for violation in axe_violations
        if violation["impact"] in ("serious", "critical")
    ]
    assert serious_violations == [], f"at a width of {width} pixels"
    assert page.evaluate("document.documentElement.scrollWidth") <= width


#: A JavaScript function that returns the texts of a chart that have a lower-case letter, each with
#: its box on the canvas. ECharts draws these texts, so they are not in the document, but in the
#: list of the shapes that ECharts has drawn.
READ_WORDS_SCRIPT = """(id) => echarts.getInstanceByDom(document.getElementById(id)).getZr().storage
    .getDisplayList(true)
    .filter((shape) => shape.type === "tspan" && /[a-z]/.test(shape.style.text))
    .map((shape) => {
      const box = shape.getBoundingRect().clone();
      const transform = shape.getComputedTransform();
      if (transform) box.applyTransform(transform);
      return { text: shape.style.text, x: box.x, y: box.y, width: box.width, height: box.height };
    })"""


def read_chart_words(page: Page, chart: str) -> list[dict[str, Any]]:
    """Return the texts of a chart that contain a lower-case letter. Bare numbers are left out.

    Each is a dict with the `text` and its box: `x`, `y`, `width` and `height` in pixels.

    chart  the id of the chart's element
    """
    return list(page.evaluate(READ_WORDS_SCRIPT, chart))


def find_overlapping_texts(texts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the pairs of texts whose boxes overlap.

    texts  texts with their boxes, as read_chart_words() returns them
    """

    def are_overlapping(first: dict[str, Any], second: dict[str, Any]) -> bool:
        return all(
            first[start] < second[start] + second[size]
            and second[start] < first[start] + first[size]
            for start, size in (("x", "width"), ("y", "height"))
        )

    return [
        (first["text"], second["text"])
        for first, second in combinations(texts, 2)
        if are_overlapping(first, second)
    ]
