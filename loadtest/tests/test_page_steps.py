"""The shop's page in a browser: two buyers step by step, its chart, and its accessibility.

In a round a visitor leads the buyers A and B through the steps of their purchases, by pressing a
button for each step. take_step() presses it and waits until the step is done; press_step() does not
wait. Locust does not run, so the page has no Start button.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from loadtest.stack.stack import Stack
from loadtest.tests.browser import (
    PageLog,
    assert_accessible,
    find_overlapping_texts,
    read_chart_words,
)
from loadtest.tests.demo_page import (
    STEPS,
    begin_round,
    find_column,
    open_page,
    press_step,
    read_newest_sale,
    take_step,
)

#: JavaScript promise that is resolved when the page has drawn all answers that it has received.
NEXT_FRAME = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
#: JavaScript that records each change of A's button in window.buttonStates. An entry is whether the
#: button is disabled, and its text: "false A: read".
RECORD_BUTTON_OF_A = """() => { const button = document.querySelector("[data-buyer=A] .step");
    window.buttonStates = [];
    new MutationObserver(() => buttonStates.push(`${button.ariaDisabled} ${button.textContent}`))
        .observe(button, { attributes: true, childList: true }); }"""
#: Color schemes, each with the width of a screen in pixels.
SCREENS: list[tuple[Literal["light", "dark"], int]] = [("light", 1280), ("dark", 390)]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Start one node and its servers, without Locust."""
    with (
        tempfile.TemporaryFile() as log,
        Stack(node_count=1, workers=1, threads=16, log=log) as running,
    ):
        yield running


def test_two_buyers_can_both_buy_the_last_unit(stack: Stack, page: Page) -> None:
    """Without a lock, A and B take each step in turn, so both read a stock of 1."""
    begin_round(page, "none")
    for step in STEPS:
        for buyer in "AB":
            if (buyer, step) == ("B", "write"):  # PostgreSQL blocks B until A commits
                press_step(page, buyer, step)
                expect(find_column(page, "B")).to_contain_text("BLOCKED")
            else:
                take_step(page, buyer, step)
    expect(page.locator("#step-verdict")).to_contain_text("OVERSOLD")
    expect(page.locator("#step-orders")).to_have_text("2")
    assert read_newest_sale(stack, "last-unit")["orders"] == 2


@pytest.mark.parametrize(
    ("lock", "reason_for_waiting"),
    [
        ("redis", "until the other buyer releases the lock"),
        ("row-lock", "for the product's row in the database"),
    ],
)
def test_second_buyer_is_shown_waiting_for_the_first(
    stack: Stack, page: Page, lock: str, reason_for_waiting: str
) -> None:
    """Buyer A reads the stock under the lock, and then B's first step is blocked.

    The page also shows how many seconds each buyer has left.
    """
    begin_round(page, lock)
    take_step(page, "A", "read")
    expect(find_column(page, "A").locator(".left")).to_have_text(re.compile(r"^[1-6][0-9] s left$"))
    press_step(page, "B", "read")
    expect(find_column(page, "B")).to_contain_text(f"BLOCKED waits {reason_for_waiting}")
    expect(find_column(page, "B").locator(".left")).to_contain_text("s left")
    for step in STEPS[1:]:
        take_step(page, "A", step)
    expect(find_column(page, "B")).to_contain_text("SOLD OUT")
    expect(page.locator("#step-verdict")).to_contain_text("EXACT")
    assert read_newest_sale(stack, "last-unit")["orders"] == 1


def test_button_that_moves_while_pressed_is_clicked(
    stack: Stack, context: BrowserContext, page_log: PageLog
) -> None:
    """While the visitor holds the mouse button down, a text is loaded and moves the page's button.

    The mouse button is released over another element, so the browser reports no click. The page
    has to recognize the click itself. Otherwise nothing would happen.
    """
    held_requests: list[Route] = []
    with open_page(context, stack, page_log, "about:blank") as page:
        page.route("**/strategies/none/code", lambda route: held_requests.append(route))
        page.goto(stack.nodes[0].url)
        begin_round(page, "none")
        button = find_column(page, "A").get_by_role("button")
        button.scroll_into_view_if_needed()
        box = button.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        with page.expect_response("**/strategies/none/code") as code:
            held_requests.pop().continue_()
        code.value.finished()
        page.evaluate(NEXT_FRAME)
        assert button.bounding_box() != box, "the button did not move, so nothing was tested"
        page.mouse.up()
        expect(find_column(page, "A").locator(".passed", has_text="read")).to_be_visible()
        expect(page.locator("#code-marked pre").first).to_be_visible()


def test_reply_to_an_earlier_request_is_not_shown_after_a_press(page: Page) -> None:
    """The page requests the state of the round repeatedly. The test delays one of the replies.

    In that reply buyer A has not started. It comes after A has taken a step. If the page showed it,
    the step would seem to be undone, and its button could be pressed again.
    """
    begin_round(page, "none")
    held_requests: list[Route] = []
    page.route("**/state?*", lambda route: held_requests.append(route), times=1)
    with page.expect_request("**/state?*"):  # The page sends this request without a press.
        pass
    page.evaluate(RECORD_BUTTON_OF_A)
    (state_request,) = held_requests
    outdated_reply = state_request.fetch()
    with page.expect_response("**/steps/step") as step_reply:
        press_step(page, "A", "read")
    step_reply.value.finished()
    page.evaluate(NEXT_FRAME)
    state_request.fulfill(response=outdated_reply)
    expect(find_column(page, "A").locator(".passed", has_text="read")).to_be_visible()
    button_states = page.evaluate("window.buttonStates")
    # "false": the button is not disabled. Its text is A's next step.
    assert button_states[-1] == "false A: write"
    assert "false A: read" not in button_states


def test_no_step_is_taken_in_a_round_about_to_be_replaced(page: Page) -> None:
    """After the visitor has pressed "New round", the buyers' buttons are disabled until it begins.

    A step of the old round would be refused or be lost. Here the test delays the request for the
    new round, and the page receives the state of the old round once more.
    """
    begin_round(page, "none")
    held_requests: list[Route] = []
    page.route("**/steps", lambda route: held_requests.append(route), times=1)
    with page.expect_request("**/steps"):
        page.get_by_role("button", name="New round").click()
    button = find_column(page, "A").get_by_role("button")
    # The page requests the state repeatedly, without a press.
    with page.expect_response("**/state?*") as state_of_the_old_round:
        pass
    state_of_the_old_round.value.finished()
    page.evaluate(NEXT_FRAME)
    expect(find_column(page, "A")).to_contain_text("Not started.")
    expect(button).to_have_attribute("aria-disabled", "true", timeout=1)
    held_requests.pop().continue_()
    take_step(page, "A", "read")


def test_step_that_the_shop_refuses_is_shown_as_not_done(page: Page, page_log: PageLog) -> None:
    """The shop answers the first press of the button with 503. The second press works."""
    page_log.provoked_statuses.add(503)
    begin_round(page, "none")
    body = json.dumps({"outcome": "unavailable", "error": "Redis does not answer"})
    page.route("**/steps/step", lambda route: route.fulfill(status=503, body=body))
    press_step(page, "A", "read")
    expect(find_column(page, "A")).to_contain_text("Not done: Redis does not answer")
    page.unroute("**/steps/step")
    take_step(page, "A", "read")
    expect(find_column(page, "A")).not_to_contain_text("Not done")


def test_page_has_no_serious_accessibility_issue(page: Page) -> None:
    """The page shows a blocked buyer and the whole code, on a laptop and on a phone."""
    begin_round(page, "redis")
    take_step(page, "A", "read")
    press_step(page, "B", "read")
    expect(find_column(page, "B")).to_contain_text("BLOCKED")
    page.locator("#code summary").click()
    expect(page.locator("#code-rest pre").first).to_be_visible()
    for scheme, width in SCREENS:
        # Without reduced motion, axe might see a color in the middle of its transition.
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.set_viewport_size({"width": width, "height": 900})
        assert_accessible(page, width)


def test_inline_script_or_style_is_blocked(page: Page, page_log: PageLog) -> None:
    """The page's Content-Security-Policy blocks both, and the browser logs this.

    The other tests check that nothing was blocked. Without this test, they would also pass if the
    policy blocked nothing at all.
    """
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "document.body.dataset.ran = 1";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<p id=inline style='color: red'>x</p>");
        }"""
    )
    assert page.locator("body").get_attribute("data-ran") is None
    text_color = page.locator("#inline").evaluate("it => getComputedStyle(it).color")
    assert text_color != "rgb(255, 0, 0)", "the text is red: its style was applied"
    blocked_complaints = [
        complaint for complaint in page_log.complaints if complaint.startswith("blocked: ")
    ]
    assert [complaint.split()[1] for complaint in blocked_complaints] == [
        "script-src-elem",
        "style-src-attr",
    ]
    page_log.complaints.clear()


@pytest.mark.parametrize(
    ("orders", "stock_left", "is_rush_on"),
    [(1, 99, False), (1, 99, True), (0, 100, True), (200, 99, False), (99, 99, False)],
)
def test_no_text_of_the_chart_is_printed_over_another(
    page: Page, orders: int, stock_left: int, is_rush_on: bool
) -> None:
    """The chart has labels for the orders, the stock and the units of the sale.

    The height of a label depends on its number. In each case two numbers are nearly equal.
    """
    sale = {
        "sale": 7,
        "open": True,
        "initial_stock": 100,
        "orders": orders,
        "stock_left": stock_left,
        "oversold": max(0, orders - 100),
        "lost_updates": 0,
        "verdict": "open",
        "lock": "none",
    }
    rush = {"on": is_rush_on, "number": 1, "started": None, "rush": None}
    state = {"sale": sale, "rush": rush, "steps": None}
    # Each purchase has the seconds since the first one, and the stock that it read.
    curve = {"curve": [[order / 100, 100] for order in range(orders)]}

    def reply(route: Route) -> None:
        body = curve if "curve" in route.request.url else state
        route.fulfill(body=json.dumps(body), content_type="application/json")

    page.route("**/state?*", reply)
    page.route("**/sales/7/curve", reply)
    page.reload()
    expect(page.locator("#chart")).to_have_attribute(
        "aria-label",
        f"Chart: {orders} orders against the line of 100 units; {stock_left} left in stock.",
    )
    texts = read_chart_words(page, "chart")
    assert {text["text"] for text in texts} >= {f"orders {orders}", f"stock {stock_left}"}
    assert find_overlapping_texts(texts) == []
