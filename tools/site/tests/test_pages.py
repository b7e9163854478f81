"""The first page and the pages of faults, lessons, search and schedules, in a browser.

The first page is the step-through, on which a visitor makes the moves of two buyers one by one. The
page of faults has a table of cells: a cell is a strategy under a fault, with its verdict. A click
on a cell opens it: the page then shows the cell's timeline and the code that decides.
"""

import gzip
import json
import re
from base64 import b64decode
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from servers.embedded import ROOT
from tools.site import pages
from tools.site.recorder.recording import read_recorded_moves
from workshop.lessons import lessons

#: A script that shows states of the step-through, one after the other, and returns the states whose
#: verdict is empty. A state is `STRATEGY/TURNS`, the end of its address.
FIND_EMPTY_VERDICTS = """async (states) => {
  const empty = [];
  for (const state of states) {
    const once = { once: true };
    const changed = new Promise((resolve) => addEventListener("hashchange", resolve, once));
    location.hash = state;
    await changed;
    if (!document.getElementById("verdict").textContent.trim()) empty.push(state);
  }
  return empty;
}"""


def is_on_screen(element: Locator) -> bool:
    """Return whether the whole element can be seen without scrolling."""
    return bool(
        element.evaluate(
            """(element) => {
              const { top, bottom } = element.getBoundingClientRect();
              return top >= 0 && bottom <= innerHeight;
            }"""
        )
    )


def wait_for_cell(page: Page) -> Locator:
    """Wait until the page of faults has drawn the timeline of the opened cell; return its title.

    A cell is a strategy under a fault.
    """
    expect(page.locator("#lanes[data-drawn]")).to_be_visible()
    return page.locator("#detail-title")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1920, 900)])
def test_faults_open_on_token_under_pause(
    site: Path, browser: Browser, width: int, height: int
) -> None:
    """The page of faults opens a first cell by itself: a strategy under a fault.

    The lines of code that decide the outcome can be seen without scrolling.
    """
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto((site / "faults.html").as_uri())
    expect(wait_for_cell(page)).to_contain_text("token under pause")
    assert is_on_screen(page.locator("#source-code mark").first)
    page.close()


def test_opened_cell_shows_its_code_on_a_phone(site: Path, phone: Page) -> None:
    """A cell is a strategy under a fault. The page scrolls to the lines that decide its outcome."""
    phone.goto(f"{(site / 'faults.html').as_uri()}#token/slow")
    expect(wait_for_cell(phone)).to_contain_text("token under slow")
    phone.wait_for_function("scrollY > 0")
    assert is_on_screen(phone.locator("#source-code mark").first)


def test_faults_are_explained_before_a_click(site: Path, page: Page) -> None:
    """A list explains each fault. The faults have the same order as in docs/faults.md."""
    page.goto((site / "faults.html").as_uri())
    wait_for_cell(page)
    explanations = page.locator("#faults-list")
    expect(explanations).to_be_visible()
    columns = page.locator(".grid thead th").all_inner_texts()
    assert explanations.locator("dt").all_inner_texts() == columns
    assert all(explanations.locator("dd").all_inner_texts())
    heading_row = re.search(
        r"^\| lock \|(.*)\|$", (ROOT / "docs/faults.md").read_text(), re.MULTILINE
    )
    assert heading_row
    assert columns == ["rush", *heading_row[1].replace(" ", "").split("|")]


def test_link_to_a_cell_survives_a_new_recording(page: Page, tmp_path: Path) -> None:
    """A link has the strategy and the fault of the cell, not the number of the cell.

    In the new recording the cells of another strategy come first, so all other numbers change.
    """
    recorded_faults = pages.read_recorded_faults()
    cells = recorded_faults["runs"]
    new_cells = [{**cell, "lock": "new-strategy"} for cell in cells if cell["lock"] == "redis"]
    new_page = tmp_path / "faults.html"
    new_page.write_text(pages.render_faults({**recorded_faults, "runs": [*new_cells, *cells]}))
    page.goto(f"{new_page.as_uri()}#token-watchdog/partition")
    expect(wait_for_cell(page)).to_contain_text("token-watchdog under partition")


def test_address_of_a_cell_has_its_strategy_and_fault(site: Path, page: Page) -> None:
    """A click on a cell changes the address, and a change of the address opens a cell.

    A cell is a strategy under a fault.
    """
    page.goto((site / "faults.html").as_uri())
    wait_for_cell(page)
    page.get_by_title("redis under crash:", exact=False).click()
    assert page.url.endswith("faults.html#redis/crash")
    page.evaluate("location.hash = 'setnx/crash'")
    expect(page.locator("#detail-title")).to_contain_text("setnx under crash")


def test_setup_of_the_recorded_faults_has_right_plurals() -> None:
    """The description of the setup says `1 worker`, not `1 workers`."""
    assert "2 nodes of 1 worker and 160 threads" in pages.read_recorded_faults()["where"]


def test_lesson_asks_before_it_answers(site: Path, page: Page) -> None:
    """The page of a lesson begins with a question and its options.

    The answer, the observation and the explanation are hidden until the reader opens them.
    """
    for lesson in lessons().values():
        page.goto((site / "workshop" / "lessons" / f"{lesson.slug}.html").as_uri())
        assert page.locator(".options li").all_inner_texts() == lesson.options
        answer = page.get_by_text(
            f"{lesson.answer}: {lesson.get_option_text(lesson.answer)}", exact=True
        )
        expect(page.get_by_text(lesson.objective)).to_be_visible()
        expect(answer).to_be_hidden()
        expect(page.get_by_role("heading", name="Explain")).to_be_hidden()
        expect(page.get_by_role("heading", name="Exercise")).to_be_visible()
        page.locator(".answer summary").click()
        expect(answer).to_be_visible()
        assert page.locator(".answer ul").last.locator("li").count() == len(lesson.key_points)


def test_search_finds_sections_of_documents(site: Path, page: Page) -> None:
    """A search from a document lists sections with all words; a click opens the document."""
    page.goto((site / "docs" / "verdicts.html").as_uri())
    page.get_by_role("searchbox").fill("rolling restart")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("sections with")
    text_of_first_section = page.locator("#results li").first.inner_text().lower()
    assert "restart" in text_of_first_section
    page.locator("#results a").first.click()
    expect(page.locator("article h1")).to_be_visible()
    word_of_no_document = "xyzzyx"
    page.goto(f"{(site / 'search.html').as_uri()}?q={word_of_no_document}")
    expect(page.get_by_role("status")).to_contain_text("No section has")


def test_search_covers_every_document(site: Path) -> None:
    """The search page contains sections of every document, as compressed JSON."""
    packed = re.search(r'id="data">"(.*?)"</script>', (site / "search.html").read_text())
    assert packed
    sections = json.loads(gzip.decompress(b64decode(packed[1])))
    pages_with_sections = {section["location"].partition("#")[0] for section in sections}
    document_pages = {
        str(page.relative_to(site))
        for page in site.rglob("*.html")
        if '<div class="document">' in page.read_text()
    }
    assert pages_with_sections == document_pages


def test_first_page_explains_the_project(site: Path, page: Page) -> None:
    """A sentence that says what the project is can be seen without scrolling."""
    page.goto((site / "index.html").as_uri())
    introduction = page.get_by_text("Oversold is a Django shop that oversells on demand")
    assert is_on_screen(introduction)


def test_first_page_is_readable_without_javascript(site: Path, browser: Browser) -> None:
    """The page shows the moves of a schedule that oversells as text, and no buttons."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    expect(page.get_by_text("The buttons need JavaScript")).to_be_visible()
    expect(page.get_by_text("B has an order")).to_be_visible()
    expect(page.get_by_text("Two orders, one unit: oversold.")).to_be_visible()
    assert page.locator("main button:visible").count() == 0
    context.close()


def test_letter_keys_can_be_switched_off(site: Path, page: Page) -> None:
    """The checkbox `Keys` switches the letter keys off and on. The browser stores the choice.

    The page begins after the first move of A; the key b is a move of B.
    """
    page.goto((site / "index.html").as_uri())
    expect(page.locator("#order")).to_have_text("So far: A")
    page.get_by_label("Keys").uncheck()
    page.keyboard.press("b")
    page.keyboard.press("r")
    expect(page.locator("#order")).to_have_text("So far: A")
    page.reload()
    expect(page.get_by_label("Keys")).not_to_be_checked()
    page.keyboard.press("b")
    expect(page.locator("#order")).to_have_text("So far: A")
    page.get_by_label("Keys").check()
    page.keyboard.press("b")
    expect(page.locator("#order")).to_have_text("So far: AB")


def test_verdict_line_has_a_sentence_in_every_state(site: Path, page: Page) -> None:
    """A state is a strategy and the turns made so far. Every state of a strategy has a verdict.

    Of each group of strategies with the same outcomes, one strategy is checked.
    """
    moves_by_strategy = read_recorded_moves()
    strategies = [group[0] for group in pages.group_by_outcomes(moves_by_strategy)]
    states = [
        f"{strategy}/{turns_made}"
        for strategy in strategies
        for turns_made in ("", *moves_by_strategy[strategy])
    ]
    page.goto((site / "index.html").as_uri())
    assert page.evaluate(FIND_EMPTY_VERDICTS, states) == []
    page.goto(f"{(site / 'index.html').as_uri()}#token/AB")
    expect(page.locator("#verdict")).to_have_text("A has read 1, B waits: press A.")


def test_move_buttons_are_on_a_phones_first_screen(site: Path, phone: Page) -> None:
    """On a phone, a visitor can make moves without scrolling."""
    phone.goto((site / "index.html").as_uri())
    assert is_on_screen(phone.locator("button.move[data-buyer=B]"))
    assert is_on_screen(phone.locator("#finish"))


def test_faults_are_a_table_of_verdicts_without_javascript(site: Path, browser: Browser) -> None:
    """The column of a verdict lists the faults under which a strategy had this verdict."""
    page = browser.new_page(java_script_enabled=False)
    page.goto((site / "faults.html").as_uri())
    headings = page.locator(".verdicts thead th").all_inner_texts()
    assert headings == ["oversold", "deadlock", "undersold", "exact"]
    row = page.locator(".verdicts tr", has=page.get_by_role("rowheader", name="token", exact=True))
    overselling_faults = row.locator("td").first.inner_text().split(", ")
    assert {"slow", "pause", "failover"} <= set(overselling_faults)
    assert "crash" not in overselling_faults
    page.close()


def test_table_of_events_says_why_a_cell_is_empty(site: Path, page: Page) -> None:
    """Three outside events affect only a lock in Redis, which `row-lock` does not have."""
    page.goto((site / "schedules.html").as_uri())
    row = page.locator("table.events tr", has=page.get_by_role("link", name="row-lock", exact=True))
    expect(row.locator("td", has_text="has no lock in Redis")).to_have_count(3)
