"""The page of the levels in a browser: every level is won by key and by touch, and read as text.

The end of an address, such as `#watchdog/AAP`, names a level and the turns that are already made.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tools.site.levels import Level, read_levels
from tools.site.worlds import read_moves

LEVELS = read_levels()
#: The window of a phone.
PHONE: ViewportSize = {"width": 390, "height": 844}


def find_shortest_schedule(level: Level) -> str:
    return level.find_schedules_reaching(read_moves()[level.world], level.goal)[0]


def make_level_address(site: Path, level: Level) -> str:
    return f"{(site / 'levels.html').as_uri()}#{level.slug}"


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    """Return an empty page in a window of a phone's size, with a touch screen."""
    context = browser.new_context(viewport=PHONE, has_touch=True)
    yield context.new_page()
    context.close()


def press_key(page: Page, turn: str) -> None:
    """Press the key for a turn: the letter of a buyer, or the number on the button of an event."""
    if turn in ("A", "B"):
        page.keyboard.press(turn.lower())
        return
    place = page.locator(f"#events button[data-event={turn}]").get_attribute("data-place")
    assert place is not None
    page.keyboard.press(str(int(place) + 1))  # `data-place` counts from 0, the keys from 1


def tap(page: Page, turn: str) -> None:
    selector = f"button.move[data-buyer={turn}]" if turn in "AB" else f"[data-event={turn}]"
    page.locator(selector).tap()


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_level_is_won_by_keys(site: Path, page: Page, level: Level) -> None:
    schedule = find_shortest_schedule(level)
    page.goto(make_level_address(site, level))
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
    phone.goto(make_level_address(site, level))
    for turn in level.wrong:
        tap(phone, turn)
    expect(phone.locator("#after")).to_be_hidden()
    if level.wrong:
        expect(phone.locator("#verdict")).to_contain_text("That is not the goal")
        phone.locator("#again").tap()
    for turn in find_shortest_schedule(level):
        tap(phone, turn)
    expect(phone.locator("#verdict .won")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_progress_stays_in_the_browser(site: Path, page: Page) -> None:
    """A level that was won is still marked after the page is loaded again."""
    page.goto(f"{make_level_address(site, LEVELS[0])}/{find_shortest_schedule(LEVELS[0])}")
    expect(page.locator("#levels a.reached")).to_have_count(1)
    page.reload()
    expect(page.locator("#levels a.reached")).to_have_count(1)
    page.locator("#next").click()
    expect(page.locator("#level-title")).to_have_text(LEVELS[1].title)
    assert page.url.endswith(f"#{LEVELS[1].slug}")


def test_longer_schedule_is_won_and_the_fewest_moves_are_named(site: Path, page: Page) -> None:
    """A click on the number of fewest moves shows the shortest schedule."""
    level = next(level for level in LEVELS if level.slug == "forever")
    moves = read_moves()[level.world]
    schedules_to_goal = level.find_schedules_reaching(moves, level.goal)
    shortest, *others = schedules_to_goal
    longer_schedule = next(schedule for schedule in others if len(schedule) > len(shortest))
    page.goto(f"{make_level_address(site, level)}/{longer_schedule}")
    expect(page.locator("#verdict")).to_contain_text(f"the fewest possible are {len(shortest)}")
    page.locator("#best").click()
    expect(page.locator("#verdict")).to_contain_text("the fewest possible.")


def test_impossible_turn_changes_nothing(site: Path, page: Page) -> None:
    """In the turns AAP, A has moved twice and was paused. A paused process cannot move.

    The key 9 does nothing, because no level has nine events.
    """
    page.goto(f"{(site / 'levels.html').as_uri()}#watchdog/AAP")
    page.keyboard.press("a")
    page.locator("button.move[data-buyer=A]").click(force=True)
    expect(page.locator("#order")).to_have_text("So far: AAP, 3 moves")
    page.keyboard.press("9")
    expect(page.locator("#order")).to_have_text("So far: AAP, 3 moves")


def test_focus_stays_on_the_event_that_was_pressed(site: Path, page: Page) -> None:
    """The event P pauses A. Then the button of P becomes the button of G, after which A goes on."""
    page.goto(f"{(site / 'levels.html').as_uri()}#watchdog/AA")
    page.locator("[data-event=P]").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.event") == "G"


@pytest.mark.parametrize("name", ["back", "again"])
def test_focus_stays_on_the_button_that_takes_back_the_last_move(
    site: Path, page: Page, name: str
) -> None:
    page.goto(f"{(site / 'levels.html').as_uri()}#watchdog/A")
    page.locator(f"#{name}").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#order")).to_have_text("Nobody has moved")
    expect(page.locator(f"#{name}")).to_be_focused()


def test_schedule_outside_the_levels_has_an_address(site: Path, page: Page) -> None:
    """An address may name a world, a strategy with its events, in place of a level.

    Then the page shows any recorded schedule of the world.
    """
    page.goto(f"{(site / 'levels.html').as_uri()}#row-lock/AAKBBB")
    expect(page.locator("#level-title")).to_have_text("Free play: row-lock")
    expect(page.locator("#order")).to_contain_text("AAK")


def test_malformed_address_shows_the_first_level(site: Path, page: Page) -> None:
    page.goto(f"{(site / 'levels.html').as_uri()}#%")
    expect(page.locator("#level-title")).to_have_text(LEVELS[0].title)


def test_levels_are_readable_without_javascript(site: Path, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    page = context.new_page()
    page.goto((site / "levels.html").as_uri())
    for level in LEVELS:
        text = page.locator(f"#text-{level.slug}")
        expect(text).to_be_visible()
        expect(text).to_contain_text(level.why)
        # Each turn has a line, except one turn in which a waiting buyer only goes on waiting.
        assert text.locator("li").count() >= len(find_shortest_schedule(level)) - 1
    assert page.locator("main button:visible").count() == 0
    context.close()


def test_links_after_a_level_lead_to_pages(site: Path, page: Page) -> None:
    for level in LEVELS:
        page.goto("about:blank")
        page.goto(f"{make_level_address(site, level)}/{find_shortest_schedule(level)}")
        for link in page.locator("#links a").all():
            target = link.get_attribute("href")
            assert target is not None
            assert (site / target.partition("#")[0]).exists(), target


def make_address(site: Path, fragment: str) -> str:
    """Return the address of a level (`twice`), or of a schedule in a level (`twice/AABAB`)."""
    return f"{(site / 'levels.html').as_uri()}#{fragment}"


def test_page_shows_a_lock_without_a_ttl(site: Path, page: Page) -> None:
    """A is killed (K) after SETNX, before EXPIRE. Then B asks for the lock, and waits (W)."""
    page.goto(make_address(site, "two-commands/AKBW"))
    expect(page.locator("#owner")).to_have_text("A's, without a ttl")
    expect(page.locator("#believers")).to_have_text("nobody")
    # The timeline shows the lock as held after each of the four turns.
    row = page.locator("#timeline tr", has_text="Lock on the server")
    expect(row.locator("td.holds")).to_have_count(4)


def test_second_event_is_refused_with_a_reason(site: Path, page: Page) -> None:
    """The last turn of AAT is the event T. Without this turn, an event is possible again."""
    page.goto(make_address(site, "watchdog/AAT"))
    expect(page.locator("#no-event")).to_have_text("One event per try: go back to choose another.")
    expect(page.locator("#no-event")).to_be_visible()
    page.keyboard.press("Backspace")
    expect(page.locator("#no-event")).to_be_hidden()


def test_letters_of_the_schedule_are_explained(site: Path, page: Page) -> None:
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
    page.goto(make_address(site, slug))
    expect(page.locator("#file")).to_contain_text(file)
    expect(page.locator("#code mark").first).to_be_visible()


def test_last_level_ends_with_the_answer(site: Path, page: Page) -> None:
    last_level = LEVELS[-1]
    page.goto(make_level_address(site, last_level))
    expect(page.locator("#ending")).to_be_hidden()
    # All levels but the last count as won, in 9 moves each.
    moves_by_slug = {level.slug: 9 for level in LEVELS[:-1]}
    store = "moves => localStorage.setItem('levels', JSON.stringify(moves))"
    page.evaluate(store, moves_by_slug)
    for turn in find_shortest_schedule(last_level):
        press_key(page, turn)
    title = page.locator("#ending-title")
    expect(title).to_have_text(f"{len(LEVELS)} of {len(LEVELS)}. Is a lock enough?")
    expect(page.locator("#ending")).to_contain_text("The row that holds the stock must decide")


def test_new_level_has_the_focus_on_its_title(site: Path, page: Page) -> None:
    page.goto(make_address(site, "forever"))
    page.locator("#levels a").nth(1).click()
    expect(page.locator("#level-title")).to_be_focused()
    expect(page.locator("#level-title")).to_have_text(LEVELS[1].title)


def test_chosen_level_in_the_row_of_levels_is_visible_on_a_phone(site: Path, phone: Page) -> None:
    for level in (LEVELS[0], LEVELS[-1]):
        phone.goto("about:blank")
        phone.goto(f"{make_level_address(site, level)}/{find_shortest_schedule(level)}")
        expect(phone.locator("#levels a.reached").first).to_be_visible()
        chip = phone.locator("#levels [aria-current]").bounding_box()
        row = phone.locator("#levels").bounding_box()
        assert chip is not None
        assert row is not None
        assert row["x"] <= chip["x"]
        assert chip["x"] + chip["width"] <= row["x"] + row["width"]
