"""What a teacher and a participant use of the page: a lesson, presets, and a file of one's own."""

import tempfile
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from loadtest.commands.rushes import Setting
from loadtest.commands.serve import ADMIN, make_admin, serving
from loadtest.stack.stack import ROOT, Stack
from loadtest.tests.browser import Watched
from loadtest.tests.demo_page import begin, column, is_over, opened, press, press_start, takes

MINE = ROOT / "workshop" / "exercises" / "ex05_late_delete.py"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    setting = Setting(buyers=10, nodes=1, workers=1, mine=str(MINE))
    with tempfile.TemporaryFile() as log, serving(setting, log=log) as (running, *_):
        yield running


def filled_in(page: Page) -> list[str]:
    """What stands in the forms."""
    fields = ("lock", "step-lock", "buyers", "stock-wanted", "hold_ms")
    return [page.locator(f"#{name}").input_value() for name in fields]


def test_a_lesson_is_projected_without_its_answer_and_the_address_fills_the_forms_and_scrolls(
    stack: Stack, context: BrowserContext, watched: Watched
) -> None:
    where = "/?lesson=5&lock=redis&buyers=40&stock=7&hold_ms=5"
    with opened(context, stack, watched, where) as page:
        lesson = page.locator(".lesson")
        expect(lesson).to_contain_text("Lesson 5: The late DEL")
        expect(lesson.locator("li")).to_have_count(4)
        expect(lesson).not_to_contain_text("make faults")  # the form is filled in: Start runs it
        assert filled_in(page) == ["redis", "redis", "40", "7", "5"]
        expect(page.locator(".steps")).to_contain_text("no next step for 10 minutes")
        page.goto(f"{stack.nodes[0].url}/?lock=nothing&buyers=many&stock=-1#steps")
        assert filled_in(page) == ["none", "none", "200", "100", "0"]
        expect(lesson).to_have_count(0)
        expect(page.locator("#code-marked mark").first).to_be_attached()  # it moves the steps down
        expect(page.locator("#steps-title")).to_be_in_viewport()
        expect(page.locator("#begin")).to_be_in_viewport()


def test_the_admin_works_from_the_login_to_a_list_and_back_out(
    stack: Stack, context: BrowserContext, watched: Watched
) -> None:
    watched.refusals.add(404)  # the admin has no icon, and a browser asks for one
    password = make_admin(stack)
    stack.shop().restock(product="apple", stock=3)
    with opened(context, stack, watched, "/admin/") as page:
        page.get_by_label("Username").fill(ADMIN)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="Sales", exact=True).first.click()
        expect(page.locator("#result_list tbody tr").first).to_contain_text("apple")
        page.locator("#result_list tbody th a").first.click()
        expect(page.get_by_role("heading", name="View sale")).to_be_visible()
        page.get_by_role("button", name="Toggle theme").first.click()
        page.get_by_role("link", name="Users", exact=True).first.click()
        page.get_by_role("link", name=ADMIN).click()
        expect(page.get_by_text("algorithm").first).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_text("Logged out")).to_be_visible()


def test_a_file_of_ones_own_is_stepped_through_and_rushed(
    stack: Stack, context: BrowserContext
) -> None:
    with opened(context, stack, Watched(), "/?lock=mine&buyers=10&stock=5") as page:
        begin(page, "mine")
        takes(page, "A", "read")
        press(page, "B", "read")
        expect(column(page, "B")).to_contain_text("waits until the other gives the lock back")
        for step in ("pay", "write", "commit"):
            takes(page, "A", step) if step != "commit" else press(page, "A", step)
        expect(column(page, "B")).to_contain_text("found nothing left")
        press_start(page)
        is_over(page)
        expect(page.locator("#verdict")).to_contain_text("EXACT")
