"""report.html in a real browser, which opens it from the disk.

The report has a grid of verdicts, whose cells show a strategy under a fault, and below it the
timeline of the chosen cell: a lane for each buyer, with a sign for each of the buyer's events.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from loadtest.faults import FAULTS
from loadtest.tests.browser import (
    PageLog,
    assert_accessible,
    find_overlapping_texts,
    read_chart_words,
)
from loadtest.tests.sample_reports import (
    MALICIOUS_TEXT,
    write_every_fault,
    write_faults,
    write_rush,
)

#: Color schemes, each with the width of a screen in pixels.
SCREENS: list[tuple[Literal["light", "dark"], int]] = [("light", 1920), ("dark", 390)]
# The following constants are JavaScript functions for Page.evaluate().

#: Returns the number of the chart's hatched rectangles, which mark two holders at a time.
HATCHED_COUNT = """() => echarts.getInstanceByDom(document.getElementById("lanes")).getZr().storage
    .getDisplayList().filter((drawn) => drawn.type === "rect" && drawn.style.decal).length"""
#: Returns how many signs of events are cut off at the end of a lane, and the width of the signs'
#: widest outline in pixels. Only signs have the z-level 5.
CLIPPED_SIGN_COUNT_AND_OUTLINE = """() => {
    const shapes = echarts.getInstanceByDom(lanes).getZr().storage.getDisplayList();
    const signs = shapes.filter((drawn) => drawn.type === "path" && drawn.z === 5);
    return [signs.filter((sign) => sign.__clipPaths?.length).length,
        Math.max(...signs.map((sign) => sign.style.lineWidth))]; }"""
#: Returns the visible part of the time axis, in percent.
VISIBLE_PERCENT = """() => {
    const { start, end } = echarts.getInstanceByDom(lanes).getOption().dataZoom[0];
    return end - start; }"""
#: Returns whether the canvas is as wide as its element, and has a pixel that is not transparent.
IS_PAINTED = """() => { const canvas = document.querySelector("#lanes canvas");
    if (canvas.width < document.getElementById("lanes").clientWidth) return false;
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    return context.getImageData(0, 0, copy.width, copy.height).data.some((byte) => byte > 0); }"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Yield a page, and check at the end that it requested only its file and logged no warning."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page_log = PageLog()
    page_log.watch(page)
    requested_urls: set[str] = set()

    def add_url(request: Request) -> None:
        requested_urls.add(request.url.partition("#")[0])

    page.on("request", add_url)
    yield page
    url = page.url.partition("#")[0]
    page.close()
    assert page_log.complaints == []
    assert requested_urls == {url}
    assert url.startswith("file://")


def open_report(page: Page, path: Path) -> None:
    """Open a report, and wait until a timeline is drawn."""
    page.goto(path.as_uri())
    page.wait_for_selector("#lanes[data-drawn]")


def wait_for_timeline(page: Page, run: int) -> None:
    """Wait until the timeline of this run is drawn. Runs are numbered from 0."""
    page.wait_for_selector(f"#lanes[data-drawn='{run}']")


def test_timeline_of_200_buyers_is_drawn(page: Page, tmp_path: Path) -> None:
    """The timeline is drawn again after the page was hidden, after a zoom, and in a narrow window.

    No sign of an event is cut off at the end of a lane. In 200 lanes the signs are small, and have
    no outline. The zoom makes them larger, and gives them an outline.
    """
    open_report(page, write_rush(tmp_path))
    page.get_by_role("button", name="redis").click()
    wait_for_timeline(page, run=1)
    page.get_by_role("button", name="none").click()
    wait_for_timeline(page, run=0)
    expect(page.locator("#detail-title")).to_have_text("none OVERSOLD")
    for display in ("none", ""):  # hidden for a frame, then shown again
        page.evaluate(f"document.querySelector('main').style.display = '{display}'")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert page.evaluate(IS_PAINTED)
    clipped_sign_count, outline_width = page.evaluate(CLIPPED_SIGN_COUNT_AND_OUTLINE)
    assert (clipped_sign_count, outline_width) == (0, 0)
    zoom_in = "{type: 'dataZoom', dataZoomId: 'y', start: 0, end: 5}"
    page.evaluate(f"echarts.getInstanceByDom(lanes).dispatchAction({zoom_in})")
    clipped_sign_count, outline_width = page.evaluate(CLIPPED_SIGN_COUNT_AND_OUTLINE)
    assert (clipped_sign_count, outline_width) == (0, 1.5)
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_function("document.querySelector('#lanes canvas').width < 700")
    assert page.evaluate(IS_PAINTED)


def test_two_overlapping_holds_under_a_pause_are_hatched(page: Page, tmp_path: Path) -> None:
    """Under `token` two buyers hold the lock at once. Their lanes are hatched for this time.

    Under `redis` no holds overlap, and nothing is hatched.
    """
    open_report(page, write_faults(tmp_path))
    expect(page.locator("#detail-title")).to_have_text("token under pause OVERSOLD")
    assert page.evaluate(HATCHED_COUNT) == 2
    expect(page.locator("#legend")).to_contain_text("two holders at a time")
    expect(page.locator("#story")).to_contain_text(
        "rival-1 (node B) has the lock, fence 8: two holders"
    )
    page.get_by_role("button", name="To the overlap").click()
    assert page.evaluate(VISIBLE_PERCENT) < 100  # the time axis is zoomed
    assert page.evaluate(HATCHED_COUNT) == 2
    page.locator("#to-all").click()
    expect(page.locator("#to-mark")).to_have_text("To the overlap")

    page.get_by_role("button", name="redis under pause: exact, as expected").click()
    wait_for_timeline(page, run=1)
    assert page.evaluate(HATCHED_COUNT) == 0
    expect(page.locator("#to-mark")).to_be_hidden()


def test_url_fragment_names_the_opened_cell(page: Page, tmp_path: Path) -> None:
    """A cell of the grid shows a strategy under a fault.

    The URL fragment has the strategy and the fault of the cell whose timeline is shown.
    """
    path = write_faults(tmp_path)
    open_report(page, path)
    page.get_by_role("button", name="redis under pause: exact, as expected").click()
    assert page.url == f"{path.as_uri()}#redis/pause"
    page.goto("about:blank")
    page.goto(f"{path.as_uri()}#redis/crash")
    expect(page.locator("#detail-title")).to_contain_text("redis")
    wait_for_timeline(page, run=2)
    page.evaluate("location.hash = 'token/pause'")
    wait_for_timeline(page, run=0)
    expect(page.locator("#faults-list")).to_contain_text(
        "SIGSTOP of the holder's node past the ttl"
    )


def test_malformed_url_fragment_opens_the_first_cell(page: Page, tmp_path: Path) -> None:
    page.goto(f"{write_faults(tmp_path).as_uri()}#%")
    wait_for_timeline(page, run=0)


def test_timeline_of_a_cell_is_opened_and_left_by_keyboard(page: Page, tmp_path: Path) -> None:
    """Tab and the arrows choose a cell of the grid, Enter shows its timeline, and Escape goes back.

    A cell shows the verdict on a strategy under a fault.
    """
    open_report(page, write_faults(tmp_path))
    focused_element = page.locator(":focus")
    for _ in range(3):  # before the grid, at most two elements can have the focus
        page.keyboard.press("Tab")
        if "cell" in (focused_element.get_attribute("class") or ""):
            break
    expect(focused_element).to_have_attribute(
        "aria-label", "token under pause: oversold, as expected"
    )
    page.keyboard.press("ArrowRight")  # no effect: `token` has no cell in the column of `crash`
    expect(focused_element).to_have_attribute(
        "aria-label", "token under pause: oversold, as expected"
    )
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(focused_element).to_have_attribute(
        "aria-label", "redis under crash: exact, expected undersold"
    )
    page.keyboard.press("Enter")
    expect(page.locator("#detail-title")).to_have_text("redis EXACT expected undersold")
    expect(page.locator("#detail-title")).to_be_focused()
    wait_for_timeline(page, run=2)
    clipped_sign_count, outline_width = page.evaluate(CLIPPED_SIGN_COUNT_AND_OUTLINE)
    assert (clipped_sign_count, outline_width) == (0, 2.5), "large signs that are not cut off"
    page.keyboard.press("Escape")
    expect(focused_element).to_have_attribute(
        "aria-label", "redis under crash: exact, expected undersold"
    )


def test_tooltip_and_table_show_the_events_of_a_lane(page: Page, tmp_path: Path) -> None:
    """A lane is the row of a buyer in the timeline.

    Run 0 is make_paused_sale(): the victim is paused, and during the pause a rival gets the lock.
    """
    open_report(page, write_faults(tmp_path))
    rivals_lane = 1
    overlap_ms = 1500  # a time at which the victim and the rival have the lock
    x, y = page.evaluate(
        """(point) => echarts.getInstanceByDom(document.getElementById("lanes"))
        .convertToPixel({ gridIndex: 0 }, point)""",
        [overlap_ms, rivals_lane],
    )
    page.locator("#lanes").hover(position={"x": x, "y": y})
    tooltip = page.locator(".tip")
    expect(tooltip).to_contain_text("rival-1 (node B)")
    expect(tooltip).to_contain_text("1.025 s  has the lock after 999.0 ms, fence 8")
    expect(tooltip).to_contain_text("two holders, with victim")
    expect(tooltip).to_contain_text("commits order 32: a stale write")
    page.get_by_text("The same as a table").first.click()
    row = page.locator("#as-table tbody tr").nth(rivals_lane)
    expect(row.locator("th")).to_have_text("rival-1")
    expect(row).to_contain_text("1.025 s  has the lock after 999.0 ms, fence 8")


def test_text_that_looks_like_markup_is_shown_as_text(page: Page, tmp_path: Path) -> None:
    """MALICIOUS_TEXT calls hacked() if the browser interprets it as markup.

    Here the text is among the rules that a sale violates (`wrong`), and in the story of the sale.
    """
    page.add_init_script("window.hacked = () => { window.wasHacked = true; }")
    path = write_faults(tmp_path, wrong=[MALICIOUS_TEXT], story=[f" 0.000 s  {MALICIOUS_TEXT}"])
    open_report(page, path)
    expect(page.locator("#facts")).to_contain_text(MALICIOUS_TEXT)
    expect(page.locator("#story-lines")).to_contain_text(MALICIOUS_TEXT)
    page.get_by_text("The same as a table").first.click()
    assert page.evaluate("window.wasHacked") is None
    assert page.locator("img").count() == 0


@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_report_fits_on_the_screen_and_is_accessible(
    browser: Browser, tmp_path: Path, scheme: Literal["light", "dark"], width: int
) -> None:
    write_small_rush = partial(write_rush, buyers=20)  # more buyers would only repeat the rows
    for write_report in (write_small_rush, write_faults):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        open_report(page, write_report(tmp_path))
        for summary in page.locator("summary").all():
            summary.click()
        assert_accessible(page, width)
        page.close()


def test_every_fault_fits_on_1280_pixels(page: Page, tmp_path: Path) -> None:
    """The grid with every fault needs no scrolling, and a key explains the symbols of its verdicts.

    In the timeline, the fault begins and ends twice within 3 ms. The texts `fault` and `healed` at
    these times do not overlap.
    """
    page.set_viewport_size({"width": 1280, "height": 800})
    open_report(page, write_every_fault(tmp_path))
    assert page.locator(".grid thead th").count() >= len(FAULTS)
    grid_frame = page.locator("#verdicts-box")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    grid_width = grid_frame.evaluate("frame => frame.scrollWidth")
    assert grid_width <= grid_frame.evaluate("frame => frame.clientWidth")
    symbols = page.locator("#verdicts-key li")
    expect(symbols).to_contain_text(["exact", "oversold", "undersold", "deadlock"])
    boxes = read_chart_words(page, "lanes")
    assert {"fault", "healed"} <= {box["text"] for box in boxes}
    marks = [box for box in boxes if box["text"] in ("fault", "healed", "two holders")]
    assert find_overlapping_texts(marks) == []


def test_row_and_column_names_stay_visible_when_the_grid_scrolls(
    page: Page, tmp_path: Path
) -> None:
    """When the grid scrolls, the names of the strategies stay at its left edge.

    The names of the faults stay at its top edge.
    """
    page.set_viewport_size({"width": 390, "height": 844})
    open_report(page, write_every_fault(tmp_path))
    strategy_name = page.locator(".grid tbody th", has_text="setnx-expire-repair")
    fault_name = page.locator(".grid thead th").nth(10)  # an arbitrary column
    frame = page.locator("#verdicts-box")
    name_box_before = strategy_name.bounding_box()
    frame_box = frame.bounding_box()
    assert name_box_before is not None
    assert frame_box is not None
    assert name_box_before["height"] < 50, "the name should not be broken into many lines"
    assert name_box_before["width"] < frame_box["width"] / 2, (
        "the cells should have more than half of the width"
    )
    frame.evaluate("frame => frame.scrollTo(300, 200)")
    name_box_after = strategy_name.bounding_box()
    fault_name_box = fault_name.bounding_box()
    assert name_box_after is not None
    assert fault_name_box is not None
    table_spacing = 4
    rounding_error = 1
    assert abs(name_box_after["x"] - name_box_before["x"]) <= table_spacing
    assert fault_name_box["y"] >= frame_box["y"] - rounding_error
