"""The step-through by key and by touch, links to it, and the accessibility of all pages.

The step-through is the site's first page, on which a visitor makes the moves of two buyers A and B
one by one. Its address may end with a strategy and the turns made so far, such as `#none/ABA`. The
element `#order` shows these turns, `#stock` and `#orders` the stock and the number of orders, and
`#verdict` the outcome.
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
#: The widths of the window in pixels, each with a colour scheme. Not every pair is tested, because
#: the colours of a scheme do not depend on the width, and axe takes a second for each page.
SCREENS: tuple[tuple[int, Scheme], ...] = ((390, "dark"), (1280, "light"), (1920, "dark"))
#: Every kind of page. `#redis/ABAABB` is a strategy and the turns made so far, and
#: `#watchdog/AAPBBBGA` a level and the turns made so far.
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
    """Wait until the page's line about the outcome contains a text; fail if it does not."""
    expect(page.locator("#verdict")).to_contain_text(text)


def test_two_key_presses_sell_the_last_unit_twice(site: Path, page: Page) -> None:
    """The key b makes a move of B, and the key f finishes the purchases of both buyers.

    The step-through begins with the strategy `none`, which has no lock, after the first move of A.
    Backspace takes a move back.
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


def test_every_move_can_be_made_by_focus_and_enter(site: Path, page: Page) -> None:
    """A focused button makes a move when Enter is pressed, and keeps the focus afterwards."""
    page.goto(f"{site.as_uri()}/index.html#none/")
    for buyer in "ABAABB":
        page.locator(f"button.move[data-buyer={buyer}]").focus()
        page.keyboard.press("Enter")
    expect_verdict(page, "Two orders, one unit")
    assert page.evaluate("document.activeElement.dataset.buyer") == "B"


@pytest.mark.parametrize("fragment", ["%", "none/%F0%9F"])
def test_malformed_address_shows_the_initial_state(site: Path, page: Page, fragment: str) -> None:
    """A visitor may copy an address without its end, so that an escaped character is incomplete."""
    page.goto(f"{site.as_uri()}/index.html#{fragment}")
    expect(page.locator("#lock")).to_have_value("none")
    expect(page.locator("#stock")).to_have_text("1")


def test_focus_stays_on_a_button_that_becomes_disabled(site: Path, page: Page) -> None:
    """A button that was just pressed may become disabled. It keeps the focus, and does nothing.

    `finish` finishes both purchases, `again` takes back all moves, and `back` the last move.
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


def test_taps_sell_the_last_unit_twice(site: Path, phone: Page) -> None:
    """The page begins after A's first move. With a row lock, B waits and the unit is sold once."""
    phone.goto((site / "index.html").as_uri())
    for buyer in "BAABB":
        phone.locator(f"button.move[data-buyer={buyer}]").tap()
    expect_verdict(phone, "Two orders, one unit")
    phone.locator("#again").tap()
    phone.locator("#lock").select_option("row-lock")
    phone.locator("button.move[data-buyer=B]").tap()
    expect(phone.locator("button.move[data-buyer=B]")).to_have_text("B waits")
    phone.locator("#finish").tap()
    expect_verdict(phone, "One order, one unit")


def test_strategies_with_the_same_outcomes_share_a_row(site: Path, page: Page) -> None:
    """The table of schedules has a column for each of the 20 orders of the moves.

    In the recording there are six different rows of outcomes. A cell links to the step-through of
    its schedule.
    """
    page.goto((site / "schedules.html").as_uri())
    rows = page.locator("table.orders tr.pattern")
    assert rows.count() == 6
    assert rows.locator("a").count() == 6 * len(TURN_ORDERS)
    assert sorted(page.locator("table.orders .names a").all_inner_texts()) == sorted(
        read_recorded_moves()
    )
    page.locator('a[href="index.html#redis-in-transaction/ABAABB"]').click()
    expect(page.locator("#lock")).to_have_value("redis-in-transaction")
    expect_verdict(page, "Two orders, one unit")


def test_cell_of_a_fault_opens_its_timeline_and_the_deciding_code(site: Path, page: Page) -> None:
    """The page of faults has a cell for each strategy under each fault: here `token` under `pause`.

    A click on the cell opens its timeline, its evidence, and the code that decides.
    """
    page.goto((site / "faults.html").as_uri())
    page.get_by_title("token under pause: oversold", exact=False).click()
    expect(page.locator("#detail-title")).to_contain_text("token under pause")
    expect(page.locator("#lanes canvas").first).to_be_visible()
    expect(page.locator("#facts")).to_contain_text("Seen")
    expect(page.locator("#story-lines li").first).to_be_visible()
    expect(page.locator("#source-file")).to_have_text("shop/strategies/token.py")


def test_no_page_logs_an_error(site: Path, page: Page) -> None:
    """The console of the browser has no errors after a page is loaded.

    The accessibility checks are in another test. They request files that a page refuses to load,
    and each refusal is logged as an error.
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
    """axe finds no violations on any kind of page, and no page is wider than the window."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    for name in PAGES:
        page.goto("about:blank")
        page.goto(f"{site.as_uri()}/{name}")
        expect(page.locator("h1").first).to_be_visible()
        axe_violations = Axe().run(page).response["violations"]
        problems += [
            f"{name}: {violation['id']}: {node['html'][:120]}"
            for violation in axe_violations
            for node in violation["nodes"][:3]
        ]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            problems.append(f"{name} is wider than {width}")
    assert problems == []
    context.close()
