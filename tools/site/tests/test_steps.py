"""The step-through by key and by touch, its links to other pages, and the accessibility of all.

The step-through is the site's first page: there a reader makes the moves of two buyers one by one.
"""

from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from loadtest.tests.browser import PageLog
from tools.site.pages import TURN_ORDERS
from tools.site.recorder.recording import read_recorded_moves

Scheme = Literal["light", "dark"]
#: Widths in pixels, each with one of the two schemes. The colours of a scheme do not depend on the
#: width, so that three pairs suffice; axe takes a second of processor time for each page.
SCREENS: tuple[tuple[int, Scheme], ...] = ((390, "dark"), (1280, "light"), (1920, "dark"))
#: Every kind of page. `#redis/ABAABB` is a strategy with the moves that are already made, and
#: `#watchdog/AAPBBBGA` a level of the game with its turns.
PAGES = (
    "index.html",
    "index.html#redis/ABAABB",
    "levels.html",
    "levels.html#watchdog/AAPBBBGA",
    "levels.html#twice/ABAABB",
    "schedules.html",
    "faults.html",
    "contents.html",
    "search.html?q=fence",
    "overview.html",
    "docs/verdicts.html",
    "workshop/lessons/01-two-buyers.html",
    "source/shop/strategies/index.html",
    "source/locks/one_file.py.html",
)


def expect_verdict(page: Page, text: str) -> None:
    expect(page.locator("#verdict")).to_contain_text(text)


def test_two_key_presses_sell_the_last_unit_twice(site: Path, page: Page) -> None:
    """The keys are b, which is a move of B, and f, after which both buyers finish.

    The page begins without a lock, and after the first move of A.
    """
    page.goto((site / "index.html").as_uri())
    expect(page.locator("#lock")).to_have_value("none")
    expect(page.locator(".track[data-buyer=A] .did")).to_contain_text("reads 1")
    expect(page.locator("#stock")).to_have_text("1")
    page.keyboard.press("b")
    expect_verdict(page, "Finish both")
    page.keyboard.press("f")
    expect_verdict(page, "Two orders, one unit")
    expect(page.locator("#orders")).to_have_text("2")
    expect(page.locator("[role=status]")).to_contain_text("Oversold: two orders, one unit")
    page.keyboard.press("Backspace")
    expect(page.locator("#orders")).to_have_text("1")


def test_every_move_can_be_made_with_tab_and_enter(site: Path, page: Page) -> None:
    page.goto(f"{site.as_uri()}/index.html#none/")
    for buyer in "ABAABB":
        page.locator(f"button.move[data-buyer={buyer}]").focus()
        page.keyboard.press("Enter")
    expect_verdict(page, "Two orders, one unit")
    assert page.evaluate("document.activeElement.dataset.buyer") == "B", "the focus stays"


@pytest.mark.parametrize("fragment", ["%", "none/%F0%9F"])
def test_malformed_address_shows_the_initial_state(site: Path, page: Page, fragment: str) -> None:
    """The end of a copied address may be missing, so that an escaped character is incomplete."""
    page.goto(f"{site.as_uri()}/index.html#{fragment}")
    expect(page.locator("#lock")).to_have_value("none")
    expect(page.locator("#stock")).to_have_text("1")


def test_focus_stays_on_a_button_that_becomes_disabled(site: Path, page: Page) -> None:
    """Each of three buttons is pressed by Enter twice. The second time it is disabled.

    Then it keeps the focus and does not change the schedule.
    """
    page.goto(f"{site.as_uri()}/index.html#none/A")
    for name in ("finish", "again", "back"):
        button = page.locator(f"#{name}")
        if name == "back":  # make a move first, because `again` has removed all moves
            page.keyboard.press("a")
        button.focus()
        page.keyboard.press("Enter")
        expect(button).to_have_attribute("aria-disabled", "true")
        expect(button).to_be_focused()
        order = page.locator("#order").inner_text()
        page.keyboard.press("Enter")
        expect(page.locator("#order")).to_have_text(order)


def test_taps_sell_the_last_unit_twice(site: Path, browser: Browser) -> None:
    """The page begins after A's first move. With a row lock, B waits and the unit is sold once."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    for buyer in "BAABB":
        page.locator(f"button.move[data-buyer={buyer}]").tap()
    expect_verdict(page, "Two orders, one unit")
    page.locator("#again").tap()
    page.locator("#lock").select_option("row-lock")
    page.locator("button.move[data-buyer=B]").tap()
    expect(page.locator("button.move[data-buyer=B]")).to_have_text("B waits")
    page.locator("#finish").tap()
    expect_verdict(page, "One order, one unit")
    context.close()


def test_table_has_one_row_for_each_pattern(site: Path, page: Page) -> None:
    """A pattern is what the 20 schedules of a strategy lead to. The recording has six patterns."""
    page.goto((site / "schedules.html").as_uri())
    patterns = page.locator("table.orders tr.pattern")
    assert patterns.count() == 6
    assert patterns.locator("a").count() == 6 * len(TURN_ORDERS)
    assert sorted(page.locator("table.orders .names a").all_inner_texts()) == sorted(
        read_recorded_moves()
    )
    page.locator('a[href="index.html#redis-in-transaction/ABAABB"]').click()
    expect(page.locator("#lock")).to_have_value("redis-in-transaction")
    expect_verdict(page, "Two orders, one unit")


def test_cell_of_a_fault_opens_its_timeline_and_the_deciding_code(site: Path, page: Page) -> None:
    """A cell is a strategy under a fault, here `token` under `pause`."""
    page.goto((site / "faults.html").as_uri())
    page.get_by_title("token under pause: oversold", exact=False).click()
    expect(page.locator("#detail-title")).to_contain_text("token under pause")
    expect(page.locator("#lanes canvas").first).to_be_visible()
    expect(page.locator("#facts")).to_contain_text("Seen")
    expect(page.locator("#story-lines li").first).to_be_visible()
    expect(page.locator("#source-file")).to_have_text("shop/strategies/token.py")


def test_no_page_logs_an_error(site: Path, page: Page) -> None:
    """Errors are those in the browser's console.

    The accessibility checks are in another test, because they request files that a page refuses to
    load, which is logged as an error.
    """
    page_log = PageLog()
    page_log.watch(page)
    for name in PAGES:
        page.goto("about:blank")
        page.goto(f"{site.as_uri()}/{name}", wait_until="networkidle")
        expect(page.locator("h1").first).to_be_visible()
    assert page_log.complaints == []


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_page_is_accessible_and_fits_the_screen(
    site: Path, browser: Browser, width: int, scheme: Scheme
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for name in PAGES:
        page.goto("about:blank")
        page.goto(f"{site.as_uri()}/{name}")
        expect(page.locator("h1").first).to_be_visible()
        axe_violations = Axe().run(page).response["violations"]
        complaints += [
            f"{name}: {violation['id']}: {node['html'][:120]}"
            for violation in axe_violations
            for node in violation["nodes"][:3]
        ]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            complaints.append(f"{name} is wider than {width}")
    assert complaints == []
    context.close()
