"""make screenshots: takes the two pictures of README.md, from real runs in a real browser.

The first picture shows the shop's page after three rushes: in a rush, many buyers arrive at once.
The second shows the report of the fault `pause`. The command needs Chromium (`apt-get install
chromium` on Debian) and the packages in tools/requirements/dev.txt.
"""

import shutil
import sys
import tempfile
from base64 import b64decode
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright
from rich.console import Console

from loadtest.commands import faults as faults_command
from loadtest.commands.main import run_printing_errors
from loadtest.commands.output import RESULTS
from loadtest.commands.rushes import RushOptions
from loadtest.commands.serve import serve_shop
from loadtest.stack.stack import StackError

PICTURES = RESULTS.parent / "docs" / "pictures"
#: The first needs less memory and time, because it has no window.
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
#: The sandbox is off, because root cannot use it. The last three options switch off requests that
#: Chromium would make by itself.
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: How long to wait until a rush of 200 buyers begins, and again until it ends.
RUSH_TIMEOUT_MS = 60_000


def find_chromium() -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def main(console: Console) -> int:
    """Take both pictures, and return the exit code: 0, or 2 if Chromium is not installed."""
    path = find_chromium()
    if path is None:
        console.print("Chromium is not installed: run `apt-get install chromium`")
        return 2
    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_ARGUMENTS))
        _take_page_picture(browser, console)
        _take_report_picture(browser, console)
        browser.close()
    return 0


def _take_page_picture(browser: Browser, console: Console) -> None:
    """Take the picture of the shop's page after three rushes, in which many buyers buy at once."""
    with tempfile.TemporaryFile() as log, serve_shop(RushOptions(), log=log) as (stack, _, _):
        page = _open_page(browser, f"{stack.nodes[0].url}/")
        for lock in ("token", "redis", "none"):
            _run_rush(page, lock)
        _save_picture(page, "page.webp", console)
        page.close()


def _run_rush(page: Page, lock: str) -> None:
    """Start a rush (many buyers at once) under a strategy on the shop's page; wait for its end.

    The text of the start button changes when the rush begins and when it ends.
    """
    page.get_by_label("Lock").first.select_option(lock)
    page.locator("#start").click()
    expect(page.locator("#start")).to_have_text("A rush is running", timeout=RUSH_TIMEOUT_MS)
    expect(page.locator("#start")).to_have_text("Start the rush", timeout=RUSH_TIMEOUT_MS)


def _take_report_picture(browser: Browser, console: Console) -> None:
    """Run the fault `pause`, and take the picture of its report, opened at the cell of `token`."""
    exit_code = faults_command.run(Console(quiet=True), faults=["pause"], locks=["token", "redis"])
    if exit_code:
        raise StackError(
            f"`make faults ARGS='--fault pause --lock token,redis'` ended with the exit code "
            f"{exit_code}, so a verdict in its report is not the expected one; "
            "run `make screenshots` again (docs/verdicts.md)"
        )
    report = (RESULTS / "latest" / "report.html").resolve()
    page = _open_page(browser, report.as_uri())
    page.get_by_role("button", name="token").first.click()
    expect(page.get_by_text("two holders").first).to_be_visible()
    _save_picture(page, "report.webp", console, selector="#detail")
    page.close()


def _open_page(browser: Browser, url: str) -> Page:
    """Open a page in a window that has the size of the pictures, with its animations off."""
    page = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    page.goto(url)
    return page


def _save_picture(page: Page, name: str, console: Console, selector: str = "") -> None:
    """Save a picture of the window, or of one element, as WebP, and print its path.

    A WebP has a third of the size of a PNG. Chromium's DevTools protocol takes the picture, because
    Playwright's screenshot() cannot write WebP.

    name      the name of the picture's file
    selector  the element; empty for the whole window
    """
    options: dict[str, object] = {"format": "webp", "quality": 80}
    if selector:
        page.evaluate("scrollTo(0, 0)")
        clip = {**(page.locator(selector).bounding_box() or {}), "scale": 1}
        options |= {"clip": clip, "captureBeyondViewport": True}
    screenshot = page.context.new_cdp_session(page).send("Page.captureScreenshot", options)
    (PICTURES / name).write_bytes(b64decode(screenshot["data"]))
    console.print(Path("docs/pictures") / name, highlight=False)


if __name__ == "__main__":
    sys.exit(run_printing_errors(main))
