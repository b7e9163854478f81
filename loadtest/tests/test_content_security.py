"""The Content-Security-Policy in a real browser: nothing that the shop shows is blocked by it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from loadtest.stack.database import manage
from loadtest.stack.stack import Stack
from loadtest.tests.browser import Watched

#: Chromium's console says it too; the event says it without depending on the console's wording.
REPORT = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`blocked: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
PASSWORD = secrets.token_urlsafe(16)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    path = tmp_path_factory.mktemp("policy") / "log"
    with path.open("wb") as log, Stack(nodes=1, workers=1, threads=32, log=log) as stack:
        clerk = ("createsuperuser", "--no-input", "--username=clerk", "--email=")
        own = {**stack.nodes[0].environment, "DJANGO_SUPERUSER_PASSWORD": PASSWORD}
        manage(*clerk, environment=own, log=log)
        yield stack


@pytest.fixture
def page(stack: Stack, browser: Browser, watched: Watched) -> Iterator[Page]:
    """A tab. At the end: every answer had a strict policy, and nothing was blocked by it."""
    context = browser.new_context(base_url=stack.nodes[0].url)
    page = context.new_page()
    page.add_init_script(REPORT)
    watched.watch(page)
    lax: list[str] = []

    def inspect(answer: Response) -> None:
        policy = answer.headers.get("content-security-policy", "")
        if "default-src 'self'" not in policy or "unsafe" in policy:
            lax.append(f"{answer.url}: {policy!r}")

    page.on("response", inspect)
    yield page
    context.close()
    assert lax == []
    assert watched.complaints == []


def test_nothing_on_the_page_is_blocked_and_its_chart_is_drawn(stack: Stack, page: Page) -> None:
    stack.shop().restock(product="apple", stock=3)
    page.goto("/")
    page.get_by_role("button", name="Buy one").click()
    expect(page.locator("#said")).to_contain_text("sold")
    expect(page.locator("#chart canvas")).to_be_visible()
    styled = page.locator("#chart div").first
    assert "position" in (styled.get_attribute("style") or ""), "ECharts lays its canvas out"
    page.locator("#code summary").click()
    expect(page.locator("#code-rest pre").first).to_be_visible()
    page.get_by_role("button", name="New round").click()
    expect(page.locator("[data-buyer=A]")).to_contain_text("Has not come yet.")


def test_the_admin_works_from_the_login_to_a_list_and_back_out(
    stack: Stack, page: Page, watched: Watched
) -> None:
    watched.refusals.add(404)  # the admin has no icon, and a browser asks for one
    stack.shop().restock(product="apple", stock=3)
    page.goto("/admin/")
    page.get_by_label("Username").fill("clerk")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="Sales", exact=True).first.click()
    expect(page.get_by_role("heading", name="Select sale")).to_be_visible()
    expect(page.locator("#result_list tbody tr").first).to_contain_text("apple")
    page.locator("#result_list tbody th a").first.click()
    expect(page.get_by_role("heading", name="View sale")).to_be_visible()
    page.get_by_role("button", name="Toggle theme").first.click()
    page.get_by_role("link", name="Users", exact=True).first.click()
    page.get_by_role("link", name="clerk").click()
    expect(page.get_by_text("algorithm").first).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_text("Logged out")).to_be_visible()


def test_an_inline_script_or_style_is_blocked(page: Page, watched: Watched) -> None:
    """The counter-test: without this the two above would pass with a policy that allows all."""
    page.goto("/")
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "document.body.dataset.ran = 1";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<p id=inline style='color: red'>x</p>");
        }"""
    )
    assert page.locator("body").get_attribute("data-ran") is None
    colour = page.locator("#inline").evaluate("it => getComputedStyle(it).color")
    assert colour != "rgb(255, 0, 0)"
    blocked = [one for one in watched.complaints if one.startswith("blocked: ")]
    assert [one.split()[1] for one in blocked] == ["script-src-elem", "style-src-attr"]
    watched.complaints.clear()
