"""The shop's page in a browser, as `make serve` shows it.

On the page a visitor starts a rush (many buyers at the same moment) under a lock, or leads two
buyers step by step through their purchases. In a workshop the page also shows a lesson, and offers
the lock that a participant has written, as the lock `mine`.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
import redis
from playwright.sync_api import BrowserContext, Page, expect

from loadtest.commands.rushes import RushOptions
from loadtest.commands.serve import ADMIN_NAME, make_admin, serve_shop
from loadtest.stack.stack import ROOT, Stack
from loadtest.tests.browser import PageLog, assert_accessible
from loadtest.tests.demo_page import (
    BUYERS,
    IDLE_TEXT,
    RUNNING_TEXT,
    RUSH_TIMEOUT_MS,
    STEPS,
    STOCK,
    begin_round,
    find_column,
    open_page,
    press_start,
    press_step,
    read_newest_sale,
    start_rush,
    take_step,
    wait_for_rush_end,
)

#: Color schemes, each with the width of a screen in pixels.
SCREENS: list[tuple[Literal["light", "dark"], int]] = [("light", 1280), ("dark", 390)]
#: Enough presses of Tab to get from any element of the page to the next one that a test uses.
MAX_TABS = 30
#: The lock of a participant of the workshop, which the page offers as the lock `mine`.
OWN_STRATEGY_FILE = ROOT / "workshop" / "exercises" / "ex05_late_delete.py"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Start what `make serve` starts, with a participant's file as the lock `mine`."""
    rush_options = RushOptions(buyers=BUYERS, own_strategy_file=str(OWN_STRATEGY_FILE))
    with tempfile.TemporaryFile() as log, serve_shop(rush_options, log=log) as (running, *_):
        yield running


@contextmanager
def hold_lock_of_redis(stack: Stack) -> Iterator[None]:
    """Hold the lock of the strategy `redis`, so that a rush under it cannot end in this block."""
    key = "lock:{redis:apple}"
    with redis.Redis(port=stack.valkeys[0].port, db=1) as client:
        assert client.set(key, "the token of another holder", nx=True, px=60_000)
        yield
        client.delete(key)


def test_page_shows_that_a_rush_without_a_lock_oversells(stack: Stack, page: Page) -> None:
    """The verdict, the numbers, the list of rushes and the chart show more orders than units."""
    start_rush(page, "none")
    wait_for_rush_end(page)
    orders = read_newest_sale(stack)["orders"]
    assert orders > STOCK
    expect(page.locator("#verdict")).to_have_text("OVERSOLD under none")
    expect(page.locator("#orders")).to_have_text(str(orders))
    expect(page.locator("#oversold")).to_have_text(str(orders - STOCK))
    expect(page.locator("#verdict svg")).to_be_visible()  # a sign besides the color
    newest = page.locator("#history tr").first
    expect(newest.locator("th")).to_have_text("none")
    expect(newest).to_contain_text(f"{orders} of {STOCK}")
    assert f"{orders} orders" in (page.locator("#chart").get_attribute("aria-label") or "")
    expect(page.locator("#chart canvas")).to_be_visible()
    page.locator("#lock").select_option("redis")
    expect(page.locator("#code-marked mark")).to_have_count(2)
    first_mark = page.locator("#code-marked mark").first
    expect(first_mark).to_contain_text("with hold_lock(make_redis_lock(attempt))")
    # The choice of another lock changes the code, but not the verdict on the last rush.
    expect(page.locator("#verdict")).to_have_text("OVERSOLD under none")


def test_verdicts_of_two_rushes_are_visible_without_scrolling(stack: Stack, page: Page) -> None:
    """The test before this one has made a rush under `none`. This test makes one under `redis`.

    A visitor sees both verdicts on the screen of a laptop, and on a larger one.
    """
    start_rush(page, "redis")
    wait_for_rush_end(page)
    expect(page.locator("#verdict")).to_have_text("EXACT under redis")
    for name, number in (("stock", 0), ("orders", STOCK), ("oversold", 0)):
        expect(page.locator(f"#{name}")).to_have_text(str(number))
    assert read_newest_sale(stack)["orders"] == STOCK
    rows = page.locator("#history tr")
    expect(rows.nth(0)).to_contain_text("EXACT")
    expect(rows.nth(1)).to_contain_text("OVERSOLD")
    for width, height in ((1280, 800), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        for element in (page.locator("#verdict"), rows.nth(0), rows.nth(1)):
            box = element.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= height, (width, height)


def test_button_shows_a_running_rush_after_a_reload(stack: Stack, page: Page) -> None:
    """The rush cannot end before the page is loaded again, because the test holds the lock."""
    with hold_lock_of_redis(stack):
        start_rush(page, "redis", stock=20)
        button = page.locator("#start")
        expect(button).to_have_text("A rush is running")
        page.reload()
        expect(button).to_have_text("A rush is running")
        expect(button).to_have_attribute("aria-disabled", "true")
        expect(page.locator("#progress")).to_contain_text(f"of {BUYERS} buyers have")
    wait_for_rush_end(page)
    expect(page.locator("#verdict")).to_have_text("EXACT under redis")
    expect(page.locator("#orders")).to_have_text("20")  # the stock of the rush, not of the form


def test_stopped_rush_has_no_verdict_and_the_next_one_works(stack: Stack, page: Page) -> None:
    """Each payment takes a second, so that the visitor can stop the rush before all have bought."""
    page.get_by_label("Payment").fill("1000")
    start_rush(page, "redis")
    progress_text = re.compile("^[1-9].* buyers have their answer")
    expect(page.locator("#progress")).to_have_text(progress_text, timeout=RUSH_TIMEOUT_MS)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#verdict")).to_have_text("STOPPED under redis", timeout=RUSH_TIMEOUT_MS)
    expect(page.locator("#stop")).to_be_hidden()
    stopped_sale = read_newest_sale(stack)
    assert not stopped_sale["open"]
    assert 0 < stopped_sale["orders"] < STOCK
    page.get_by_label("Payment").fill("0")
    start_rush(page, "none")
    wait_for_rush_end(page)
    expect(page.locator("#verdict")).to_have_text("OVERSOLD under none")
    orders_now = stack.shop().sale(stopped_sale["sale"])["orders"]
    assert orders_now == stopped_sale["orders"], "the closed sale has sold nothing more"


def test_on_a_phone_the_verdict_is_on_the_screen_after_start(page: Page) -> None:
    """The page scrolls to the verdict, which a phone does not show together with the button."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("#start").scroll_into_view_if_needed()
    expect(page.locator("#verdict")).not_to_be_in_viewport()
    start_rush(page, "redis", buyers=10, stock=5)
    expect(page.locator("#verdict")).to_be_in_viewport(ratio=1)
    wait_for_rush_end(page)


def test_payments_longer_than_the_deadline_are_reported_at_once(page: Page) -> None:
    """Under a lock the payments come one after another. 5 s each for 100 units take 500 s.

    The buyers give up after 60 s, so the page warns the visitor before the rush.
    """
    page.get_by_label("Payment").fill("5000")
    expect(page.locator("#hold-warning")).to_contain_text("the buyers give up after 60 s")
    page.get_by_label("Payment").fill("5")
    expect(page.locator("#hold-warning")).to_be_empty()


def test_button_shows_that_the_shop_is_unreachable(page: Page, page_log: PageLog) -> None:
    """The page's requests to the shop fail for a while, and then work again."""
    expect(page.locator("#start")).to_have_text("Start the rush")
    page.route("**/state?*", lambda route: route.abort())
    expect(page.locator("#start")).to_have_text("The shop does not answer")
    expect(page.locator("#start")).to_have_attribute("aria-disabled", "true")
    expect(page.locator("#offline")).to_contain_text("is make serve still running?")
    page.unroute("**/state?*")
    expect(page.locator("#start")).to_have_text("Start the rush")
    # The browser complains about the failed requests. open_page() would fail on any complaint.
    page_log.complaints = [
        complaint for complaint in page_log.complaints if "ERR_FAILED" not in complaint
    ]


def test_rush_with_a_wrong_number_of_buyers_is_not_started(stack: Stack, page: Page) -> None:
    """The visitor enters 0 buyers. The browser marks the field, because its minimum is 1."""
    last_sale = read_newest_sale(stack)["sale"]
    start_rush(page, "none", buyers=0)
    field = page.get_by_label("Buyers")
    expect(field).to_be_focused()
    assert field.evaluate("it => it.validity.rangeUnderflow && it.matches(':user-invalid')")
    expect(page.locator("#start")).to_have_text("Start the rush")
    assert read_newest_sale(stack)["sale"] == last_sale


def test_one_unit_can_be_bought_by_hand(page: Page, page_log: PageLog) -> None:
    """The page's message is that the unit was sold, or that the sale is sold out."""
    page_log.provoked_statuses.add(409)  # the status of the answer `sold_out`
    page.get_by_role("button", name="Buy one").click()
    expect(page.locator("#message")).to_contain_text("sold")


def test_unknown_verdict_is_shown_with_its_reason(page: Page) -> None:
    """`why` is the reason. If it is empty, the page shows only that the verdict is open."""
    sale = {
        "sale": 1,
        "initial_stock": 5,
        "stock_left": 5,
        "orders": 0,
        "oversold": 0,
        "lock": "mine",
        "verdict": "unknown",
        "why": "",
        "is_on": False,
        "run": {},
    }
    state = {"sale": sale, "rush": {"on": False, "number": 1, "rush": None}, "steps": None}
    page.route("**/state?*", lambda route: route.fulfill(json=state))
    expect(page.locator("#explained")).to_have_text("The verdict is open.")
    sale["why"] = (
        "10 buyers got no final answer (10 error); the shop's error was: line 3: NameError"
    )
    expect(page.locator("#explained")).to_have_text(f"The verdict is open: {sale['why']}")


def test_buy_one_with_an_empty_payment_buys_nothing(stack: Stack, page: Page) -> None:
    """The visitor presses the button "Buy one". The empty field gets the focus."""
    orders = read_newest_sale(stack)["orders"]
    page.get_by_label("Payment").fill("")
    page.get_by_role("button", name="Buy one").click()
    expect(page.get_by_label("Payment")).to_be_focused()
    expect(page.locator("#message")).to_be_empty()
    assert read_newest_sale(stack)["orders"] == orders


def test_buy_one_without_a_sale_advises_to_start_a_rush(page: Page, page_log: PageLog) -> None:
    """The shop's error advises to send POST /restock, which a visitor cannot do.

    So the page advises to press the Start button instead.
    """
    page_log.provoked_statuses.add(404)
    answer = {"outcome": "closed", "error": "Open a sale for it with POST /restock."}
    page.route("**/buy", lambda route: route.fulfill(status=404, json=answer))
    page.get_by_role("button", name="Buy one").click()
    expect(page.locator("#message")).to_have_text("No sale is open: Start the rush opens one.")


def test_message_of_a_refused_start_ends_with_the_rush(page: Page, page_log: PageLog) -> None:
    """Another tab has started a rush, but this page still shows the Start button.

    The shop refuses to start a second rush. The page shows its message until the first rush has
    ended.
    """
    page_log.provoked_statuses.add(409)
    rush = {"on": False, "number": 0, "rush": None}
    state = {"sale": None, "rush": rush, "steps": None}
    page.route("**/state?*", lambda route: route.fulfill(json=state))
    refusal = {"outcome": "not_now", "error": "A rush is running. Wait for it to finish."}
    page.route("**/rush", lambda route: route.fulfill(status=409, json=refusal))
    page.get_by_role("button", name=IDLE_TEXT).click()
    expect(page.locator("#message")).to_have_text(refusal["error"])
    rush["on"] = True
    expect(page.locator("#start")).to_have_text(RUNNING_TEXT)
    expect(page.locator("#message")).to_have_text(refusal["error"])
    rush["on"] = False
    expect(page.locator("#start")).to_have_text(IDLE_TEXT)
    expect(page.locator("#message")).to_be_empty()


def test_everything_can_be_done_with_the_keyboard(page: Page) -> None:
    """A visitor starts a rush, opens the code of the lock, and leads buyer A through a purchase."""

    def tab_to(selector: str) -> None:
        """Press Tab until this element has the focus, and assert that it then has an outline."""
        for _ in range(MAX_TABS):
            page.keyboard.press("Tab")
            if page.locator(selector).evaluate("it => it === document.activeElement"):
                outline = page.locator(selector).evaluate("it => getComputedStyle(it).outlineWidth")
                assert outline == "3px", f"{selector} does not show that it has the focus"
                return
        raise AssertionError(f"{selector} did not get the focus after {MAX_TABS} presses of Tab")

    tab_to("#lock")
    page.keyboard.type("row")
    tab_to("#buyers")
    page.keyboard.type("20")
    tab_to("#stock-wanted")
    page.keyboard.type("7")
    tab_to("#start")
    page.keyboard.press("Enter")
    wait_for_rush_end(page)
    expect(page.locator("#verdict")).to_have_text("EXACT under row-lock")
    expect(page.locator("#orders")).to_have_text("7")
    tab_to("#code summary")
    page.keyboard.press("Enter")
    expect(page.locator("#code-rest pre").first).to_be_visible()
    tab_to("#step-lock")
    page.keyboard.type("none")
    tab_to("#begin")
    page.keyboard.press("Enter")
    expect(find_column(page, "A")).to_contain_text("Not started.")
    tab_to("[data-buyer=A] .step")
    for step in STEPS:
        page.keyboard.press("Enter")  # the focus stays on the button from step to step
        expect(find_column(page, "A").locator(".passed", has_text=step)).to_be_visible()
    expect(find_column(page, "A")).to_contain_text("SOLD")


def test_table_of_sales_fits_laptop_and_phone(page: Page) -> None:
    """The table has long names of strategies. On a phone one of its six columns is hidden."""
    common_fields = {
        "run": {"buyers": 200, "hold_ms": 0, "duration_s": 12.4},
        "initial_stock": 100,
        "stock_left": 68,
        "lost_updates": 171,
        "oversold": 0,
    }
    sales = [
        {"sale": 0, "lock": "redis-in-transaction", "verdict": "oversold", "orders": 103},
        {"sale": 1, "lock": "setnx-timestamp-del", "verdict": "undersold", "orders": 97},
        {"sale": 2, "lock": "conditional", "verdict": "closed", "orders": 2},
    ]
    history = {"sales": [{**sale, **common_fields} for sale in sales]}
    page.route("**/history?*", lambda route: route.fulfill(json=history))
    for width, column_count in ((1280, 6), (390, 5)):
        page.set_viewport_size({"width": width, "height": 844})
        page.reload()
        row = page.locator("#history tr", has_text="setnx-timestamp-del")
        expect(row.locator("th:visible, td:visible")).to_have_count(column_count)
        table = page.locator(".history .scroll")
        assert table.evaluate("it => it.scrollWidth <= it.clientWidth"), width
    expect(page.locator(".history .hint")).to_contain_text("closed: sold without a rush")


def read_form_values(page: Page) -> list[str]:
    """Return the two locks, the buyers, the stock and the payment in the page's two forms."""
    field_ids = ("lock", "step-lock", "buyers", "stock-wanted", "hold_ms")
    return [page.locator(f"#{field_id}").input_value() for field_id in field_ids]


def test_projected_lesson_hides_its_answer_and_fills_the_forms(
    stack: Stack, context: BrowserContext, page_log: PageLog
) -> None:
    """The address of the page has the number of a lesson and the values of the form's fields.

    If a value in the address is wrong, the field keeps its default. With #steps at the end of the
    address, the page scrolls to the two buyers.
    """
    address = "/?lesson=5&lock=redis&buyers=40&stock=7&hold_ms=5"
    with open_page(context, stack, page_log, address) as page:
        lesson = page.locator(".lesson")
        expect(lesson).to_contain_text("Lesson 5: The late DEL")
        expect(lesson.locator("li")).to_have_count(4)
        expect(lesson).not_to_contain_text("make faults")  # the visitor only has to press Start
        assert read_form_values(page) == ["redis", "redis", "40", "7", "5"]
        expect(page.locator(".steps")).to_contain_text("no next step for 10 minutes")
        page.goto(f"{stack.nodes[0].url}/?lock=nothing&buyers=many&stock=-1#steps")
        assert read_form_values(page) == ["none", "none", "200", "100", "0"]
        expect(lesson).to_have_count(0)
        # The code of the lock, which is loaded late, moves the steps down.
        expect(page.locator("#code-marked mark").first).to_be_attached()
        expect(page.locator("#steps-title")).to_be_in_viewport()
        expect(page.locator("#begin")).to_be_in_viewport()


def test_facilitator_enters_the_votes_and_then_shows_the_answer(
    stack: Stack, context: BrowserContext, page_log: PageLog
) -> None:
    """Lesson 4 has a question with four answers, a to d. The right answer is d.

    When the facilitator has entered the votes, the page shows them, but not the right answer. That
    is shown only after a press of the button "Show the answer".
    """
    with open_page(context, stack, page_log, "/?lesson=4&lock=redis") as page:
        lesson = page.locator(".lesson")
        expect(lesson.locator("meter")).to_have_count(0)
        for letter, votes in {"a": 3, "b": 9, "c": 1, "d": 2}.items():
            lesson.get_by_label(f"Votes {letter}").fill(str(votes))
        lesson.get_by_label("Votes d").press("Enter")
        expect(lesson.locator(".votes")).to_have_text(["3 of 15", "9 of 15", "1 of 15", "2 of 15"])
        expect(lesson.locator("[name=votes]").nth(1)).to_have_value("9")
        expect(lesson.locator(".right")).to_have_count(0)
        expect(page.locator("#lock")).to_have_value("redis")
        for scheme, width in SCREENS:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.set_viewport_size({"width": width, "height": 900})
            assert_accessible(page, width)
        lesson.get_by_role("button", name="Show the answer").click()
        expect(lesson.locator(".right")).to_contain_text("never")
        expect(lesson.locator(".right .votes")).to_have_text("2 of 15")
        expect(lesson.locator(".observed")).to_contain_text("0 orders for 10 units")


def test_admin_works_from_the_login_to_a_list_and_back_out(
    stack: Stack, context: BrowserContext, page_log: PageLog
) -> None:
    """A visitor logs in to Django's admin, looks at a sale, changes the colors and logs out."""
    page_log.provoked_statuses.add(404)  # the admin has no icon, but a browser requests one
    password = make_admin(stack)
    stack.shop().restock(product="apple", stock=3)
    with open_page(context, stack, page_log, "/admin/") as page:
        page.get_by_label("Username").fill(ADMIN_NAME)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="Sales", exact=True).first.click()
        expect(page.locator("#result_list tbody tr").first).to_contain_text("apple")
        page.locator("#result_list tbody th a").first.click()
        expect(page.get_by_role("heading", name="View sale")).to_be_visible()
        page.get_by_role("button", name="Toggle theme").first.click()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_text("Logged out")).to_be_visible()


def test_lock_of_a_participant_works_in_steps_and_in_a_rush(
    stack: Stack, context: BrowserContext, page_log: PageLog
) -> None:
    """The lock `mine` is in a participant's file. Buyer B waits for it until A has bought the unit.

    The round has only one unit, so B buys nothing. Then a rush under this lock is exact.
    """
    with open_page(context, stack, page_log, "/?lock=mine&buyers=10&stock=5") as page:
        begin_round(page, "mine")
        take_step(page, "A", "read")
        press_step(page, "B", "read")
        expect(find_column(page, "B")).to_contain_text(
            "waits until the other buyer releases the lock"
        )
        take_step(page, "A", "write")
        press_step(page, "A", "commit")
        expect(find_column(page, "B")).to_contain_text("found no unit left")
        press_start(page)
        wait_for_rush_end(page)
        expect(page.locator("#verdict")).to_contain_text("EXACT")
