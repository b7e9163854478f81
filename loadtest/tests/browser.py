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
MISSING = "Chromium is not installed: apt-get install chromium"


def require_chromium() -> str:
    """Return the path of Chromium. Without it the test fails in CI, and is skipped elsewhere."""
    browser_path = find_chromium()
    if browser_path is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return browser_path


@contextmanager
def launch_browser(*arguments: str) -> Iterator[Browser]:
    """Start a browser without a window, with these arguments besides its usual ones."""
    path = require_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=[*CHROMIUM_ARGUMENTS, *arguments]
        )
        yield browser
        browser.close()


@dataclass
class PageLog:
    """The hosts of a page's requests, and the page's errors and warnings.

    hosts       the hosts that received requests
    complaints  errors and warnings of the page
    refusals    status codes that the test provokes; Chromium logs every refusal as an error
    """

    hosts: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    refusals: set[int] = field(default_factory=set)

    def watch(self, page: Page) -> None:
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname or ""))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self.listen)

    def listen(self, message: ConsoleMessage) -> None:
        provoked = any(f"status of {status} " in message.text for status in self.refusals)
        if message.type in ("error", "warning") and not provoked:
            self.complaints.append(message.text)


def assert_accessible(page: Page, width: int) -> None:
    """Assert that axe finds no serious violation, and that the page fits its width."""
    axe_violations = Axe().run(page).response["violations"]
    serious = [
        violation for violation in axe_violations if violation["impact"] in ("serious", "critical")
    ]
    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in serious] == [], width
    assert page.evaluate("document.documentElement.scrollWidth") <= width


#: Every text of a chart that is a word, with its box on the canvas.
WORDS = """(id) => echarts.getInstanceByDom(document.getElementById(id)).getZr().storage
    .getDisplayList(true)
    .filter((drawn) => drawn.type === "tspan" && /[a-z]/.test(drawn.style.text))
    .map((drawn) => {
      const box = drawn.getBoundingRect().clone();
      const moved = drawn.getComputedTransform();
      if (moved) box.applyTransform(moved);
      return { text: drawn.style.text, x: box.x, y: box.y, width: box.width, height: box.height };
    })"""


def read_chart_words(page: Page, chart: str) -> list[dict[str, Any]]:
    """Return the words of a chart: `text`, and `x`, `y`, `width` and `height` in pixels.

    chart  the id of the chart's element
    """
    return list(page.evaluate(WORDS, chart))


def find_overlapping_texts(texts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the pairs of texts whose boxes overlap."""

    def overlap(box: dict[str, Any], other: dict[str, Any]) -> bool:
        return all(
            box[at] < other[at] + other[size] and other[at] < box[at] + box[size]
            for at, size in (("x", "width"), ("y", "height"))
        )

    pairs = combinations(texts, 2)
    return [(box["text"], other["text"]) for box, other in pairs if overlap(box, other)]
