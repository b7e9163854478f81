"""Actions on the shop's page in a browser, as a visitor takes them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

from playwright.sync_api import BrowserContext, Locator, Page, Response, expect

from loadtest.stack.stack import Stack
from loadtest.tests.browser import PageLog

BUYERS, STOCK = 60, 30
#: Milliseconds for a rush to begin and to end.
RUSH_MS = 20_000
PLACES = ("read", "write", "commit")
RUNS, IDLE = "A rush is running", "Start the rush"
#: Each text that the button has had. A look at it now and then misses a rush of ten buyers.
RECORD = """addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("start");
  window.texts = [];
  if (!button) return;
  new MutationObserver(() => texts.push(button.textContent)).observe(button, { childList: true });
})"""


#: Chromium's console says it too; the event says it without depending on the console's wording.
REPORT = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`blocked: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`))"""


@contextmanager
def open_page(
    context: BrowserContext, stack: Stack, page_log: PageLog, address: str = "/"
) -> Iterator[Page]:
    """Open a tab, and check at the end that the page behaved.

    It must have asked no other machine and have logged no complaint, and its policy must have been
    strict and have blocked nothing. What the stack logs meanwhile is printed, so that pytest shows
    it if the test fails.
    """
    log = stack.log.fileno()  # its place is that of the processes that write there: not moved
    begin = os.fstat(log).st_size
    page = context.new_page()
    page.add_init_script(RECORD)
    page.add_init_script(REPORT)
    page_log.watch(page)
    policies: dict[str, str] = {}

    def inspect(answer: Response) -> None:
        if answer.request.resource_type == "document":
            policies[answer.url] = answer.headers.get("content-security-policy", "")

    page.on("response", inspect)
    page.goto(stack.nodes[0].url + address if address.startswith("/") else address)
    try:
        yield page
    finally:
        print(
            *page_log.complaints, os.pread(log, 100_000, begin).decode(errors="replace"), sep="\n"
        )
        page.close()
    assert page_log.hosts == {"127.0.0.1"}
    assert page_log.complaints == []
    for url, policy in policies.items():
        assert "default-src 'self'" in policy, url
        assert "unsafe" not in policy, url


def newest_sale(stack: Stack, product: str = "apple") -> dict[str, Any]:
    with urlopen(f"{stack.nodes[0].url}/sales/latest?product={product}", timeout=10) as answer:
        return dict(json.load(answer))


def start_rush(page: Page, lock: str, buyers: int = BUYERS, stock: int = STOCK) -> None:
    page.get_by_label("Lock").first.select_option(lock)
    page.get_by_label("Buyers").fill(str(buyers))
    page.get_by_label("Stock", exact=True).fill(str(stock))
    press_start(page)


def press_start(page: Page) -> None:
    """Start the rush that the form describes."""
    page.evaluate("texts.length = 0")
    page.get_by_role("button", name=IDLE).click()


def wait_for_rush_end(page: Page) -> None:
    """Wait until the button has shown a running rush, and then that another one can be started."""
    page.wait_for_function(
        "([runs, idle]) => texts.includes(runs) && texts.at(-1) === idle",
        arg=[RUNS, IDLE],
        timeout=2 * RUSH_MS,
    )


def begin_round(page: Page, lock: str) -> None:
    page.locator("#step-lock").select_option(lock)
    page.get_by_role("button", name="New round").click()
    for buyer in "AB":
        expect(find_column(page, buyer)).to_contain_text("Not started.")


def find_column(page: Page, buyer: str) -> Locator:
    return page.locator(f"[data-buyer={buyer}]")


def press(page: Page, buyer: str, step: str) -> None:
    page.get_by_role("button", name=f"{buyer}: {step}", exact=True).click()


def take_step(page: Page, buyer: str, step: str) -> None:
    """Press a buyer's button for a step, and wait until the page shows that the step is done."""
    press(page, buyer, step)
    done = find_column(page, buyer).locator(".passed", has_text=step)
    expect(done).to_be_visible()
