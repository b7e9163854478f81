"""The page of the levels in a browser: it is played by key and by touch, and read as text.

A level is a puzzle: the player chooses the next turn again and again, until the schedule reaches a
goal. A turn is a letter: a move of the buyer A or B, or an outside event such as a pause of A's
process (P); tools/site/worlds.py lists the letters.

The end of an address, such as `#watchdog/AAP`, is the slug of a level and the turns made so far.
The element `#order` shows these turns, and `#verdict` whether the goal is reached.
"""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tools.site.levels import Level, read_levels
from tools.site.tests.conftest import PHONE
from tools.site.worlds import read_moves

LEVELS = read_levels()


def find_shortest_schedule(level: Level) -> str:
    """Return the shortest schedule that reaches the goal of a level."""
    return level.find_schedules_reaching(read_moves()[level.world], level.goal)[0]


def make_address(site: Path, fragment: str) -> str:
    """Return the address of a level (`twice`), or of a schedule in a level (`twice/AABAB`)."""
    return f"{(site / 'levels.html').as_uri()}#{fragment}"


def make_address_of_win(site: Path, level: Level) -> str:
    """Return the address of the shortest schedule that reaches the goal of a level."""
    return make_address(site, f"{level.slug}/{find_shortest_schedule(level)}")


def press_key(page: Page, turn: str) -> None:
    """Press the key for a turn: the letter of a buyer, or the number on the button of an event."""
    if turn in ("A", "B"):
        page.keyboard.press(turn.lower())
        return
    place = page.locator(f"#events button[data-event={turn}]").get_attribute("data-place")
    assert place is not None
    page.keyboard.press(str(int(place) + 1))  # `data-place` counts from 0, the keys from 1


def tap_button(page: Page, turn: str) -> None:
    """Tap the button for a turn: that of a buyer, or that of an outside event."""
    selector = f"button.move[data-buyer={turn}]" if turn in "AB" else f"[data-event={turn}]"
    page.locator(selector).tap()


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_level_is_won_by_keys(site: Path, page: Page, level: Level) -> None:
    """After the shortest schedule, the page shows the win, the timeline, the reason and the code.

    The element `#after` has the reason and the code. It is hidden until the level is won.
    """
    schedule = find_shortest_schedule(level)
    page.goto(make_address(site, level.slug))
    expect(page.locator("#after")).to_be_hidden()
    for turn in schedule:
        press_key(page, turn)
    expect(page.locator("#verdict .won")).to_contain_text(f"in {len(schedule)} moves: the fewest")
    expect(page.locator("#timeline tr").first.locator("th")).to_have_count(len(schedule))
    expect(page.locator("#why")).to_have_text(level.why)
    expect(page.locator("#code mark").first).to_be_visible()
    expect(page.locator("#announcement")).to_contain_text("moves: the fewest")


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_level_is_failed_and_then_won_by_touch(site: Path, phone: Page, level: Level) -> None:
    """First the player makes the turns of `level.wrong`, which do not reach the goal."""
    phone.goto(make_address(site, level.slug))
    for turn in level.wrong:
        tap_button(phone, turn)
    expect(phone.locator("#after")).to_be_hidden()
    if level.wrong:
        expect(phone.locator("#verdict")).to_contain_text("That is not the goal")
        phone.locator("#again").tap()
    for turn in find_shortest_schedule(level):
        tap_button(phone, turn)
    expect(phone.locator("#verdict .won")).to_be_visible()
    content_width = phone.evaluate("document.documentElement.scrollWidth")
    assert content_width <= PHONE["width"]


def test_progress_stays_in_the_browser(site: Path, page: Page) -> None:
    """A level that was won is still marked after the page is loaded again."""
    first_level, second_level, *_ = LEVELS
    page.goto(make_address_of_win(site, first_level))
    expect(page.locator("#levels a.reached")).to_have_count(1)
    page.reload()
    expect(page.locator("#levels a.reached")).to_have_count(1)
    page.locator("#next").click()
    expect(page.locator("#level-title")).to_have_text(second_level.title)
    assert page.url.endswith(f"#{second_level.slug}")


def test_after_a_longer_schedule_the_fewest_moves_are_shown(site: Path, page: Page) -> None:
    """A schedule that is not the shortest wins the level, too.

    The page shows the smallest possible number of moves. A click on this number shows the shortest
    schedule.
    """
    level = next(level for level in LEVELS if level.slug == "forever")
    moves = read_moves()[level.world]
    shortest, *other_schedules = level.find_schedules_reaching(moves, level.goal)
    longer_schedule = next(
        schedule for schedule in other_schedules if len(schedule) > len(shortest)
    )
    page.goto(make_address(site, f"{level.slug}/{longer_schedule}"))
    expect(page.locator("#verdict")).to_contain_text(f"the fewest possible are {len(shortest)}")
    page.locator("#best").click()
    expect(page.locator("#verdict")).to_contain_text("the fewest possible.")


def test_impossible_turn_changes_nothing(site: Path, page: Page) -> None:
    """After the turns AAP, A has moved twice and is paused. A paused process cannot move.

    The key 9 does nothing, because no level has nine outside events.
    """
    page.goto(make_address(site, "watchdog/AAP"))
    page.keyboard.press("a")
    page.locator("button.move[data-buyer=A]").click(force=True)
    expect(page.locator("#order")).to_have_text("So far: AAP, 3 moves")
    page.keyboard.press("9")
    expect(page.locator("#order")).to_have_text("So far: AAP, 3 moves")


def test_focus_stays_on_the_event_that_was_pressed(site: Path, page: Page) -> None:
    """The event P pauses A's process. Its button then becomes the button G, which resumes A."""
    page.goto(make_address(site, "watchdog/AA"))
    page.locator("[data-event=P]").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.event") == "G"


@pytest.mark.parametrize("name", ["back", "again"])
def test_focus_stays_on_the_button_that_takes_back_the_last_move(
    site: Path, page: Page, name: str
) -> None:
    """The button `back` takes back the last move, and `again` all moves. Here there is one move."""
    page.goto(make_address(site, "watchdog/A"))
    page.locator(f"#{name}").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#order")).to_have_text("Nobody has moved")
    expect(page.locator(f"#{name}")).to_be_focused()


def test_schedule_outside_the_levels_has_an_address(site: Path, page: Page) -> None:
    """An address may have the name of a world in place of the slug of a level.

    A world is a strategy with its stock and its outside events. With such an address, the page
    shows any recorded schedule of the world.
    """
    page.goto(make_address(site, "row-lock/AAKBBB"))
    expect(page.locator("#level-title")).to_have_text("Free play: row-lock")
    expect(page.locator("#order")).to_contain_text("AAK")


def test_malformed_address_shows_the_first_level(site: Path, page: Page) -> None:
    """A `%` without two digits after it is no valid escape."""
    page.goto(make_address(site, "%"))
    expect(page.locator("#level-title")).to_have_text(LEVELS[0].title)


def test_levels_are_readable_without_javascript(site: Path, browser: Browser) -> None:
    """Each level is shown as text: its solution, turn by turn, and its explanation."""
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    page = context.new_page()
    page.goto((site / "levels.html").as_uri())
    for level in LEVELS:
        text = page.locator(f"#text-{level.slug}")
        expect(text).to_be_visible()
        expect(text).to_contain_text(level.why)
        # Each turn has a line, except at most one turn, in which a buyer continues to wait.
        assert text.locator("li").count() >= len(find_shortest_schedule(level)) - 1
    assert page.locator("main button:visible").count() == 0
    context.close()


def test_links_after_a_level_lead_to_pages(site: Path, page: Page) -> None:
    """The links that are shown after a level was won lead to files of the site."""
    for level in LEVELS:
        page.goto("about:blank")
        page.goto(make_address_of_win(site, level))
        for link in page.locator("#links a").all():
            target = link.get_attribute("href")
            assert target is not None
            assert (site / target.partition("#")[0]).exists(), target


def test_page_shows_a_lock_without_a_ttl(site: Path, page: Page) -> None:
    """A is killed (K) after SETNX and before EXPIRE. Then B requests the lock, and waits (W).

    The lock is still A's on the server, although A is dead and believes nothing.
    """
    page.goto(make_address(site, "two-commands/AKBW"))
    expect(page.locator("#owner")).to_have_text("A's, without a ttl")
    expect(page.locator("#believers")).to_have_text("nobody")
    # The timeline shows that the lock was held after each of the four turns.
    row = page.locator("#timeline tr", has_text="Lock on the server")
    expect(row.locator("td.holds")).to_have_count(4)


def test_second_event_is_refused_with_a_reason(site: Path, page: Page) -> None:
    """The last turn of AAT is the outside event T: time passes. A schedule has only one such event.

    When T is taken back, an event is possible again.
    """
    page.goto(make_address(site, "watchdog/AAT"))
    expect(page.locator("#no-event")).to_have_text("One event per try: go back to choose another.")
    expect(page.locator("#no-event")).to_be_visible()
    page.keyboard.press("Backspace")
    expect(page.locator("#no-event")).to_be_hidden()


def test_letters_of_the_schedule_are_explained(site: Path, page: Page) -> None:
    """Below a schedule, the page explains each of its letters."""
    page.goto(make_address(site, "watchdog/AAPG"))
    expect(page.locator("#turns-key")).to_have_text(
        "A, B: a buyer's move; P: A's process is paused for longer than a ttl; "
        "G: A's process continues"
    )


def test_why_button_focuses_the_explanation(site: Path, page: Page) -> None:
    """The button appears when the level is won, here by a move of B."""
    page.goto(make_address(site, "twice/AABAB"))
    expect(page.locator("#to-why")).to_be_hidden()
    page.keyboard.press("b")
    page.locator("#to-why").click()
    assert page.evaluate("document.activeElement.id") == "after-title"


@pytest.mark.parametrize(("slug", "file"), [("fence", "fences.py"), ("one-key", "models.py")])
def test_level_shows_the_code_that_decides_with_its_line_marked(
    site: Path, page: Page, slug: str, file: str
) -> None:
    """These levels are decided by a function that is not in the file of their strategy."""
    page.goto(make_address(site, slug))
    expect(page.locator("#file")).to_contain_text(file)
    expect(page.locator("#code mark").first).to_be_visible()


def test_last_level_ends_with_the_conclusion(site: Path, page: Page) -> None:
    """When the last level is won, and all others were won before, the page shows the conclusion."""
    *earlier_levels, last_level = LEVELS
    page.goto(make_address(site, last_level.slug))
    expect(page.locator("#ending")).to_be_hidden()
    # The browser stores the number of moves in which each level was won. Any number will do.
    moves_by_slug = {level.slug: 9 for level in earlier_levels}
    store = "moves => localStorage.setItem('levels', JSON.stringify(moves))"
    page.evaluate(store, moves_by_slug)
    for turn in find_shortest_schedule(last_level):
        press_key(page, turn)
    title = page.locator("#ending-title")
    expect(title).to_have_text(f"{len(LEVELS)} of {len(LEVELS)}. Is a lock enough?")
    expect(page.locator("#ending")).to_contain_text("The row that holds the stock must decide")


def test_new_level_has_the_focus_on_its_title(site: Path, page: Page) -> None:
    """After a click on another level, a screen reader reads the title of this level."""
    page.goto(make_address(site, "forever"))
    page.locator("#levels a").nth(1).click()
    expect(page.locator("#level-title")).to_be_focused()
    expect(page.locator("#level-title")).to_have_text(LEVELS[1].title)


def test_chosen_level_in_the_row_of_levels_is_visible_on_a_phone(site: Path, phone: Page) -> None:
    """The row of levels is wider than a phone. It is scrolled to the link of the chosen level."""
    for level in (LEVELS[0], LEVELS[-1]):
        phone.goto("about:blank")
        phone.goto(make_address_of_win(site, level))
        expect(phone.locator("#levels a.reached").first).to_be_visible()
        link = phone.locator("#levels [aria-current]").bounding_box()
        row = phone.locator("#levels").bounding_box()
        assert link is not None
        assert row is not None
        assert row["x"] <= link["x"]
        assert link["x"] + link["width"] <= row["x"] + row["width"]
