"""What a teacher and a participant use of the page: a lesson, presets, and a file of one's own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from loadtest.commands.rushes import Setting
from loadtest.commands.serve import serving
from loadtest.stack.stack import ROOT, Stack
from loadtest.tests.browser import Watched, launched
from loadtest.tests.demo_page import (
    begin,
    column,
    is_over,
    opened,
    press,
    press_start,
    shown_if_it_fails,
    takes,
)

MINE = ROOT / "workshop" / "exercises" / "ex05_late_delete.py"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    setting = Setting(buyers=10, nodes=1, workers=1, mine=str(MINE))
    with tempfile.TemporaryFile() as log, serving(setting, log=log) as (running, _):
        yield running


@pytest.fixture(autouse=True)
def _log(stack: Stack) -> Iterator[None]:
    with shown_if_it_fails(stack):
        yield


@pytest.fixture(scope="module")
def context() -> Iterator[BrowserContext]:
    with launched() as browser:
        yield browser.new_context(viewport={"width": 1280, "height": 800})


def at(stack: Stack, address: str) -> str:
    return f"{stack.nodes[0].url}{address}"


def test_a_lesson_is_projected_without_its_answer_and_the_address_fills_the_forms_in(
    stack: Stack, context: BrowserContext
) -> None:
    where = at(stack, "/?lesson=5&lock=redis&buyers=40&stock=7&hold_ms=5")
    with opened(context, where, Watched()) as page:
        lesson = page.locator(".lesson")
        expect(lesson).to_contain_text("Lesson 5: The late DEL")
        expect(lesson.locator("li")).to_have_count(4)
        expect(lesson).not_to_contain_text("make faults")  # the form is filled in: Start runs it
        values = {name: page.locator(f"#{name}").input_value() for name in FORMS}
        assert values == {**FORMS}
        expect(page.locator(".steps")).to_contain_text("no next step for 10 minutes")


FORMS = {"lock": "redis", "step-lock": "redis", "buyers": "40", "stock-wanted": "7", "hold_ms": "5"}


def test_an_address_that_ends_in_steps_shows_them(stack: Stack, context: BrowserContext) -> None:
    with opened(context, at(stack, "/?lock=none#steps"), Watched()) as page:
        expect(page.locator("#code-marked mark").first).to_be_attached()  # it moves the steps down
        expect(page.locator("#steps-title")).to_be_in_viewport()
        expect(page.locator("#begin")).to_be_in_viewport()


def test_nonsense_in_the_address_changes_nothing(stack: Stack, context: BrowserContext) -> None:
    with opened(context, at(stack, "/?lock=nothing&buyers=many&stock=-1"), Watched()) as page:
        values = {name: page.locator(f"#{name}").input_value() for name in FORMS}
        assert values == {
            "lock": "none",
            "step-lock": "none",
            "buyers": "200",
            "stock-wanted": "100",
            "hold_ms": "0",
        }
        expect(page.locator(".lesson")).to_have_count(0)


def test_a_file_of_ones_own_is_stepped_through_and_rushed(
    stack: Stack, context: BrowserContext
) -> None:
    with opened(context, at(stack, "/?lock=mine&buyers=10&stock=5"), Watched()) as page:
        begin(page, "mine")
        takes(page, "A", "read")
        press(page, "B", "read")
        expect(column(page, "B")).to_contain_text("waits until the other gives the lock back")
        for step in ("pay", "write", "commit"):
            takes(page, "A", step) if step != "commit" else press(page, "A", step)
        expect(column(page, "B")).to_contain_text("found nothing left")
        rushed(page)


def rushed(page: Page) -> None:
    press_start(page)
    is_over(page)
    expect(page.locator("#verdict")).to_contain_text("EXACT")
