"""The shop's page and Locust's in a browser, as make serve shows them."""

from __future__ import annotations

import csv
import http.client
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from typing import Literal
from urllib.request import urlopen

import psutil
import psycopg
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from loadtest.commands.run import Setting
from loadtest.commands.serve import serving
from loadtest.rush.locust_process import Buyers
from loadtest.stack.stack import Stack
from loadtest.tests import browser as browsers
from loadtest.tests.browser import Watched, launched

Served = tuple[Stack, Buyers]
BUYERS, STOCK = 60, 30
#: Milliseconds for a rush to begin and to end.
RUSH_MS = 20_000
SCREENS: list[tuple[Literal["light", "dark"], int]] = [("light", 1280), ("dark", 390)]
PLACES = ("check", "hold", "decrement", "commit")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryFile() as log, serving(Setting(buyers=BUYERS), log=log) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as running:
        yield running


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One cache for all pages: the charting library is a megabyte."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context
    context.close()


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def page(served: Served, context: BrowserContext, watched: Watched) -> Iterator[Page]:
    """The shop's page. At the end: it asked nobody but this machine, and complained of nothing."""
    page = context.new_page()
    watched.watch(page)
    page.goto(served[0].nodes[0].url)
    yield page
    page.close()
    assert watched.hosts == {"127.0.0.1"}
    assert watched.complaints == []


def start(page: Page, lock: str, buyers: int = BUYERS, stock: int = STOCK) -> None:
    page.get_by_label("Lock").first.select_option(lock)
    page.get_by_label("Buyers").fill(str(buyers))
    page.get_by_label("Stock", exact=True).fill(str(stock))
    page.get_by_role("button", name="Start the rush").click()


def is_over(page: Page) -> None:
    """Wait until the rush that was started has its card in the history."""
    expect(page.locator("#start")).to_have_text("A rush is running", timeout=RUSH_MS)
    expect(page.locator("#start")).to_have_text("Start the rush", timeout=RUSH_MS)


def orders_in_the_database(stack: Stack, product: str) -> int:
    """How many orders its newest sale has, by PostgreSQL's own count."""
    with psycopg.connect(stack.database_url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM purchase_history WHERE sale_id = "
            "(SELECT sale_id FROM product WHERE name = %s)",
            [product],
        ).fetchone()
    assert row is not None
    return int(row[0])


def newest_sale(stack: Stack) -> int:
    with urlopen(f"{stack.nodes[0].url}/sales/latest", timeout=10) as answer:
        return int(json.load(answer)["sale"])


def begin(page: Page, lock: str) -> None:
    page.locator("#step-lock").select_option(lock)
    page.get_by_role("button", name="New round").click()
    for buyer in "AB":
        expect(column(page, buyer)).to_contain_text("Has not come yet.")


def column(page: Page, buyer: str) -> Locator:
    return page.locator(f"[data-buyer={buyer}]")


def press(page: Page, buyer: str, step: str) -> None:
    page.get_by_role("button", name=f"{buyer}: {step}", exact=True).click()


def takes(page: Page, buyer: str, step: str) -> None:
    """Press the buyer's button, and see it done."""
    press(page, buyer, step)
    done = column(page, buyer).locator(".passed", has_text=step)
    expect(done).to_be_visible()


def test_a_rush_without_a_lock_is_seen_to_oversell(served: Served, page: Page) -> None:
    start(page, "none")
    is_over(page)
    orders = orders_in_the_database(served[0], "apple")
    assert orders > STOCK
    expect(page.locator("#verdict")).to_have_text("OVERSOLD")
    expect(page.locator("#orders")).to_have_text(str(orders))
    expect(page.locator("#oversold")).to_have_text(str(orders - STOCK))
    expect(page.locator("#verdict svg")).to_be_visible()  # not colour alone
    card = page.locator("#history li").first
    expect(card).to_contain_text("none")
    expect(card).to_contain_text(f"{orders} of {STOCK}")
    assert f"{orders} orders" in (page.locator("#chart").get_attribute("aria-label") or "")
    expect(page.locator("#chart canvas")).to_be_visible()


def test_the_same_rush_under_redis_is_exact_and_is_shown_beside_it(
    served: Served, page: Page
) -> None:
    start(page, "redis")
    is_over(page)
    expect(page.locator("#verdict")).to_have_text("EXACT")
    for name, number in (("stock", 0), ("orders", STOCK), ("oversold", 0)):
        expect(page.locator(f"#{name}")).to_have_text(str(number))
    assert orders_in_the_database(served[0], "apple") == STOCK
    expect(page.locator("#history li").first).to_contain_text("EXACT")


def test_while_a_rush_runs_the_button_says_so_after_a_reload_too(
    served: Served, page: Page, watched: Watched
) -> None:
    page.get_by_label("Hold").fill("100")
    start(page, "redis", stock=20)
    button = page.locator("#start")
    expect(button).to_have_text("A rush is running")
    page.reload()
    expect(button).to_have_text("A rush is running")
    expect(button).to_have_attribute("aria-disabled", "true")
    watched.refusals.add(409)
    form = "new URLSearchParams(new FormData(document.getElementById('start-form')))"
    status = page.evaluate(f"fetch('/rush', {{method: 'POST', body: {form}}}).then(a => a.status)")
    assert status == 409
    is_over(page)
    expect(page.locator("#verdict")).to_have_text("EXACT")
    expect(page.locator("#orders")).to_have_text("20")  # the first one's, not the form's


def test_bad_input_is_explained_beside_its_field_and_starts_nothing(
    served: Served, page: Page, watched: Watched
) -> None:
    watched.refusals.add(400)
    before = newest_sale(served[0])
    start(page, "none", buyers=0)
    wrong = page.get_by_label("Buyers")
    expect(wrong).to_have_attribute("aria-invalid", "true")
    expect(wrong).to_be_focused()
    expect(page.locator("#buyers-error")).to_have_text("A whole number from 1 to 1000.")
    expect(page.locator("#start")).to_have_text("Start the rush")
    assert newest_sale(served[0]) == before


def test_one_unit_can_be_bought_by_hand(page: Page, watched: Watched) -> None:
    watched.refusals.add(409)  # sold out is a refusal, too
    page.get_by_role("button", name="Buy one").click()
    expect(page.locator("#said")).to_contain_text("sold")


def test_two_buyers_are_led_into_buying_the_last_unit(served: Served, page: Page) -> None:
    begin(page, "none")
    for step in PLACES:
        for buyer in "AB":
            if (buyer, step) == ("B", "decrement"):  # PostgreSQL makes it wait for A's commit
                press(page, buyer, step)
                expect(column(page, "B")).to_contain_text("BLOCKED")
            else:
                takes(page, buyer, step)
    expect(page.locator("#step-verdict")).to_contain_text("OVERSOLD")
    expect(page.locator("#step-orders")).to_have_text("2")
    assert orders_in_the_database(served[0], "last-unit") == 2


@pytest.mark.parametrize("lock", ["redis", "row-lock"])
def test_under_a_lock_the_second_buyer_is_seen_to_be_blocked(
    served: Served, page: Page, lock: str
) -> None:
    begin(page, lock)
    takes(page, "A", "check")
    press(page, "B", "check")
    expect(column(page, "B")).to_contain_text("BLOCKED")
    for step in PLACES[1:]:
        takes(page, "A", step)
    expect(column(page, "B")).to_contain_text("SOLD OUT")
    expect(page.locator("#step-verdict")).to_contain_text("EXACT")
    assert orders_in_the_database(served[0], "last-unit") == 1


def test_everything_can_be_done_with_the_keyboard(page: Page) -> None:
    def tab_to(selector: str) -> None:
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.locator(selector).evaluate("it => it === document.activeElement"):
                outline = page.locator(selector).evaluate("it => getComputedStyle(it).outlineWidth")
                assert outline == "3px", f"{selector} does not show that it has the focus"
                return
        raise AssertionError(f"{selector} is not reached with Tab")

    tab_to("#lock")
    page.keyboard.type("row")
    tab_to("#buyers")
    page.keyboard.type("20")
    tab_to("#stock-wanted")
    page.keyboard.type("7")
    tab_to("#start")
    page.keyboard.press("Enter")
    is_over(page)
    expect(page.locator("#verdict")).to_have_text("EXACT")
    expect(page.locator("#orders")).to_have_text("7")
    tab_to("#code summary")
    page.keyboard.press("Enter")
    expect(page.locator("#code pre").first).to_contain_text("FOR UPDATE")
    tab_to("#step-lock")
    page.keyboard.type("none")
    tab_to("#begin")
    page.keyboard.press("Enter")
    expect(column(page, "A")).to_contain_text("Has not come yet.")
    tab_to("[data-buyer=A] .step")
    for done in PLACES:
        page.keyboard.press("Enter")  # the focus stays where it is from step to step
        expect(column(page, "A").locator(".passed", has_text=done)).to_be_visible()
    expect(column(page, "A")).to_contain_text("SOLD")


def test_axe_finds_nothing_serious(page: Page) -> None:
    begin(page, "redis")
    takes(page, "A", "check")
    press(page, "B", "check")
    expect(column(page, "B")).to_contain_text("BLOCKED")
    page.locator("#code summary").click()
    expect(page.locator("#code pre").first).to_be_visible()
    for scheme, width in SCREENS:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no colour half-way
        page.set_viewport_size({"width": width, "height": 900})
        found = Axe().run(page).response["violations"]
        serious = [one["id"] for one in found if one["impact"] in ("serious", "critical")]
        assert serious == [], (scheme, width)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, "the page can be scrolled sideways"


def test_locust_has_a_tab_with_the_verdicts_and_their_csv(served: Served, browser: Browser) -> None:
    _, buyers = served
    run = buyers.rush(lock="none", buyers=20, stock=10, hold_ms=0, product="apple", deadline=60)
    page = browser.new_page()
    page.goto(f"{buyers.url}/?tab=verdicts")
    page.get_by_role("tab", name="Verdicts").click()
    newest = page.locator("tbody tr").first
    for cell in ("none", "OVERSOLD", str(run["orders"])):
        expect(newest.get_by_role("cell", name=cell, exact=True).first).to_be_visible()
    page.get_by_role("tab", name="Download Data").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download verdicts CSV").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert (rows[-1]["lock"], rows[-1]["verdict"]) == ("none", "OVERSOLD")
    assert rows[-1]["orders"] == str(run["orders"])
    page.close()


def test_a_look_costs_the_shop_at_most_5_ms_of_cpu(served: Served) -> None:
    """Of the whole node, Locust's state and a round of steps included."""
    node = served[0].nodes[0]
    assert node.process is not None
    master = psutil.Process(node.process.pid)
    processes = [master, *master.children(recursive=True)]

    def spent() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    page = http.client.HTTPConnection("127.0.0.1", node.port, timeout=10)  # kept, as a browser does

    def look(times: int) -> float:
        """Milliseconds of CPU for each."""
        before = spent()
        for _ in range(times):
            page.request("GET", "/state?product=apple")
            assert page.getresponse().read()
        return (spent() - before) / times * 1000

    look(20)  # each worker's first one
    each = min(look(60) for _ in range(3))  # others on the machine only ever add to it
    page.close()
    print(f"{each:.2f} ms of CPU")
    assert 0 < each <= 5


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_without_chromium_the_browser_tests_fail_in_ci_and_are_skipped_elsewhere(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(outcome, match="apt-get install chromium"):
        browsers.needed_chromium()
