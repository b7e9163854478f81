"""Actions of a visitor on the shop's page in a browser.

On the page a visitor starts rushes, in which many buyers buy at once. There are also rounds, in
which a visitor leads two buyers, A and B, through their purchases step by step.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

from playwright.sync_api import BrowserContext, Locator, Page, Response, expect

from loadtest.stack.stack import Stack
from loadtest.tests.browser import PageLog

#: The buyers and the units of a rush, unless a test chooses others.
BUYERS = 60
STOCK = 30
#: The time within which a rush must begin, and the time within which it must then end.
RUSH_TIMEOUT_MS = 20_000
#: The steps of a buyer in a round.
STEPS = ("read", "write", "commit")
#: The texts of the Start button, during a rush and before the next one.
RUNNING_TEXT, IDLE_TEXT = "A rush is running", "Start the rush"
#: JavaScript that records every text of the Start button in the list `texts`. A rush of ten buyers
#: is so short that a test which polls the button could miss it.
RECORD_TEXTS_SCRIPT = """addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("start");
  window.texts = [];
  if (!button) return;
  new MutationObserver(() => texts.push(button.textContent)).observe(button, { childList: true });
})"""
#: JavaScript that logs each request that the page's Content-Security-Policy blocked. Chromium logs
#: it as well, but in a wording that may change.
REPORT_BLOCKED_SCRIPT = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`blocked: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`))"""


@contextmanager
def open_page(
    context: BrowserContext, stack: Stack, page_log: PageLog, address: str = "/"
) -> Iterator[Page]:
    """Open a tab, and check the page at the end.

    The page must have sent no request to another machine, and logged no error or warning. Its
    Content-Security-Policy must be strict, and must have blocked nothing. At the end the new lines
    of the stack's log are printed, so that pytest shows them if the test fails.

    address  a path of the shop, or a whole URL
    """
    log = stack.log.fileno()
    log_size_before = os.fstat(log).st_size
    page = context.new_page()
    page.add_init_script(RECORD_TEXTS_SCRIPT)
    page.add_init_script(REPORT_BLOCKED_SCRIPT)
    page_log.watch(page)
    policies: dict[str, str] = {}

    def record_policy(response: Response) -> None:
        if response.request.resource_type == "document":
            policies[response.url] = response.headers.get("content-security-policy", "")

    page.on("response", record_policy)
    page.goto(stack.nodes[0].url + address if address.startswith("/") else address)
    try:
        yield page
    finally:
        # The processes of the stack write at the file's position, which pread() does not change.
        new_lines = os.pread(log, 100_000, log_size_before).decode(errors="replace")
        print(*page_log.complaints, new_lines, sep="\n")
        page.close()
    assert page_log.hosts == {"127.0.0.1"}
    assert page_log.complaints == []
    for url, policy in policies.items():
        assert "default-src 'self'" in policy, url
        assert "unsafe" not in policy, url


def read_newest_sale(stack: Stack, product: str = "apple") -> dict[str, Any]:
    """Return the shop's report on the newest sale of a product."""
    with urlopen(f"{stack.nodes[0].url}/sales/latest?product={product}", timeout=10) as answer:
        return dict(json.load(answer))


def start_rush(page: Page, lock: str, buyers: int = BUYERS, stock: int = STOCK) -> None:
    """Fill in the form, and start a rush under the strategy `lock`."""
    page.get_by_label("Lock").first.select_option(lock)
    page.get_by_label("Buyers").fill(str(buyers))
    page.get_by_label("Stock", exact=True).fill(str(stock))
    press_start(page)


def press_start(page: Page) -> None:
    """Empty the list of recorded button texts, and start the rush that the form describes."""
    page.evaluate("texts.length = 0")
    page.get_by_role("button", name=IDLE_TEXT).click()


def wait_for_rush_end(page: Page) -> None:
    """Wait until the Start button has shown RUNNING_TEXT, and then IDLE_TEXT again."""
    page.wait_for_function(
        "([running, idle]) => texts.includes(running) && texts.at(-1) === idle",
        arg=[RUNNING_TEXT, IDLE_TEXT],
        timeout=2 * RUSH_TIMEOUT_MS,  # once until the rush begins, and once until it ends
    )


def begin_round(page: Page, lock: str) -> None:
    """Begin a round under the strategy `lock`, and wait until the page shows it.

    In a round a visitor leads two buyers, A and B, through their purchases step by step.
    """
    page.locator("#step-lock").select_option(lock)
    page.get_by_role("button", name="New round").click()
    for buyer in "AB":
        expect(find_column(page, buyer)).to_contain_text("Not started.")


def find_column(page: Page, buyer: str) -> Locator:
    """Return the column of a buyer, `A` or `B`, on the page."""
    return page.locator(f"[data-buyer={buyer}]")


def press_step(page: Page, buyer: str, step: str) -> None:
    """Press a buyer's button for a step."""
    page.get_by_role("button", name=f"{buyer}: {step}", exact=True).click()


def take_step(page: Page, buyer: str, step: str) -> None:
    """Press a buyer's button for a step, and wait until the page shows that the step is done."""
    press_step(page, buyer, step)
    done_step = find_column(page, buyer).locator(".passed", has_text=step)
    expect(done_step).to_be_visible()
