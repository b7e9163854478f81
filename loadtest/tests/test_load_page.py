"""The report.html of a load run in a real browser, opened from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from loadtest.report import load_page
from loadtest.tests.browser import Watched
from loadtest.tests.loaded import run_of, summary_of, usual

SCREENS: list[tuple[Literal["light", "dark"], int]] = [("light", 1920), ("dark", 390)]
#: The names and the colours of the lines in the chart.
LINES = """() => echarts.getInstanceByDom(document.getElementById("over")).getOption()
    .series.map((one) => `${one.name} ${one.lineStyle.type} ${one.lineStyle.color}`)"""


@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_it_draws_and_axe_finds_nothing_serious(
    browser: Browser, watched: Watched, tmp_path: Path, scheme: Literal["light", "dark"], width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    watched.watch(page)
    page.goto(load_page.write(tmp_path, usual()).as_uri())
    page.wait_for_selector("#over[data-drawn]")
    expect(page.locator("#verdicts-box tbody tr").first).to_contain_text("LOST UPDATES")
    expect(page.locator("#verdicts-box tbody tr").last).to_contain_text("EXACT")
    said = "Lines. The p99 in the last second: none 1000 ms, redis 1000 ms."
    expect(page.locator("#over")).to_have_attribute("aria-label", said)
    lines = page.evaluate(LINES)
    assert [line.rpartition(" ")[0] for line in lines] == [
        *("none solid", "none dotted", "redis solid", "redis dotted"),
    ]
    assert len({line.rpartition(" ")[2] for line in lines}) == 2, "a colour for each strategy"
    for summary in page.locator("summary").all():
        summary.click()
    serious = [
        (one["id"], one["nodes"][0]["html"])
        for one in Axe().run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
    assert watched.complaints == []
    assert watched.hosts == {""}


def test_a_run_that_failed_says_why_as_text(browser: Browser, tmp_path: Path) -> None:
    failed = run_of("redis", "unknown", why="<img src=x onerror=alert(1)> was lost")
    page = browser.new_page()
    page.goto(load_page.write(tmp_path, summary_of(failed)).as_uri())
    expect(page.locator("#notes")).to_have_text(
        "redis, round 1: <img src=x onerror=alert(1)> was lost"
    )
    expect(page.locator("#sum")).to_have_text("1 strategy: 1 not as expected.")
    assert page.locator("img").count() == 0
    page.close()
