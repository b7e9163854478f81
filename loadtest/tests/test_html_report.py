"""The data of report.html: lanes, marks, and text that stays text."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loadtest.judge import intervals
from loadtest.report.html import ASSETS, HERE, write
from loadtest.report.html.data import report_data
from loadtest.report.html.timeline import OPEN, SOLD, STALE, timeline
from loadtest.tests.happenings import Happenings
from loadtest.tests.reported import HOSTILE, calm, crowd, run_of, summary_of, write_faults
from loadtest.tests.test_story import RUN, paused
from servers.embedded import ROOT


def drawn(shop: Happenings, **more: Any) -> dict[str, Any]:
    found = timeline(shop.history(), run_of(shop, "token", "pause", **more))
    assert found is not None
    return found


def data_in(page: Path) -> Any:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_two_holders_under_a_pause_are_marked_in_both_their_lanes() -> None:
    assert drawn(paused())["overlaps"] == [[0, 1025.0, 2566.0, 1], [1, 1025.0, 2566.0, 0]]


def test_holders_one_after_the_other_are_not_marked() -> None:
    assert drawn(calm(RUN))["overlaps"] == []


def test_a_stale_write_is_marked_and_the_one_that_it_erased_is_not() -> None:
    states = {(lane, order): state for lane, _, _, _, order, state in drawn(paused())["commits"]}
    assert states[1, 32] == STALE
    assert {state for place, state in states.items() if place != (1, 32)} == {SOLD}
    assert states[0, 31] == SOLD


def test_an_old_read_that_lost_no_update_is_not_marked() -> None:
    shop = paused()
    shop.shelf = -1  # relative writes: eleven orders took eleven units
    assert {commit[-1] for commit in drawn(shop)["commits"]} == {SOLD}


def test_a_commit_without_an_outcome_is_left_open() -> None:
    shop = Happenings(stock=2)
    shop.asks(0, "victim")
    shop.reads(1, "victim", 2)
    shop.at(2, "victim", "before_commit", "invoke", order=31)
    shop.answered(3, "victim", "unknown")
    assert drawn(shop)["commits"] == [[0, 1.0, 2.0, 2, 31, OPEN]]


def test_lanes_are_in_the_order_in_which_their_buyers_came() -> None:
    shop = Happenings(stock=0)
    for ms, key in ((5, "late"), (1, "first"), (3, "second"), (7, "first")):
        shop.asks(ms, key)
        shop.at(ms + 0.2, key, "acquire", "invoke", node="B")
        shop.answered(ms + 0.5, key, "sold_out")
    found = drawn(shop)
    assert found["lanes"] == [["first", "B"], ["second", "B"], ["late", "B"]]
    assert [lane for lane, *_ in found["requests"]] == [0, 1, 2, 0]


def test_a_hold_has_its_wait_its_fence_and_what_its_release_found() -> None:
    victim, rival, *_ = drawn(paused())["holds"]
    assert victim == [0, 1.0, 5.0, 2566.0, 7, ""]
    assert rival == [1, 26.0, 1025.0, 2567.0, 8, ""]


def test_the_release_that_came_too_late_says_so() -> None:
    shop = Happenings(stock=1)
    shop.asks(0, "victim")
    shop.acquires(1, 2, "victim", 7)
    shop.at(5, "victim", "release", "invoke", token="victim at 2")
    shop.at(6, "victim", "released", token="victim at 2", outcome="expired")
    shop.answered(7, "victim", "sold_out")
    assert drawn(shop)["holds"] == [[0, 1.0, 2.0, 5.0, 7, "expired"]]


def test_a_holder_that_never_released_is_shown_up_to_its_last_event() -> None:
    shop = Happenings(stock=1)
    shop.asks(0, "victim")
    shop.acquires(1, 2, "victim")
    shop.reads(4, "victim", 1)
    assert drawn(shop)["holds"] == [[0, 1.0, 2.0, 4.0, None, "never released"]]


def test_the_shelf_shows_what_each_commit_left_and_ends_with_the_report() -> None:
    shelf = drawn(paused())["shelf"]
    assert shelf[:3] == [[0.0, 0, 10], [2556.5, 1, 9], [2565.5, 2, 9]]
    assert shelf[-1][1:] == [11, 0]
    calm_shelf = [[orders, stock] for _, orders, stock in drawn(calm(RUN))["shelf"]]
    assert calm_shelf == [[0, 2], [1, 1], [2, 0], [2, 0]]


def test_a_run_of_which_nothing_was_recorded_has_no_timeline() -> None:
    run = run_of(calm("x"), "zookeeper", "rush", attempts="nobody")
    assert report_data(summary_of(run), [])["runs"][0]["timeline"] is None


def test_a_report_of_no_run_at_all_is_written_too(tmp_path: Path) -> None:
    page = write(tmp_path, summary_of(), [], title="every fault")
    assert data_in(page)["runs"] == []


def test_rushes_for_the_same_product_are_kept_apart() -> None:
    shops = {"a1": crowd("a1", buyers=3, stock=2), "b2": calm("b2")}
    runs = [run_of(shop, "none", "rush", attempts=name) for name, shop in shops.items()]
    events = [event for shop in shops.values() for event in shop.history().events]
    first, second = report_data(summary_of(*runs), events)["runs"]
    assert [lane[0] for lane in first["timeline"]["lanes"]] == ["buyer-0", "buyer-1", "buyer-2"]
    assert [lane[0] for lane in second["timeline"]["lanes"]] == ["victim", "rival-1", "rival-2"]


def test_a_buyers_wait_ends_with_its_last_answer() -> None:
    shop = Happenings(stock=1)
    shop.asks(0, "a1/one")
    shop.answered(10, "a1/one", "busy")
    shop.asks(50, "a1/one")
    shop.answered(80, "a1/one", "sold_out")
    shop.asks(90, "a1/nobody answers")
    run = run_of(shop, "redis", "rush", attempts="a1")
    assert report_data(summary_of(run), shop.history().events)["latency"] == [
        ["redis", 1, [80.0] * 6]
    ]


def test_the_events_of_each_run_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: Counter[str] = Counter()

    def watch(name: str) -> None:
        parse = getattr(intervals, name)

        def counted(*events: Any) -> Any:
            parsed[name] += 1
            return parse(*events)

        monkeypatch.setattr(intervals, name, counted)

    for name in ("_requests", "_holds_by_handler", "_commits"):
        watch(name)
    shops = {"a1": crowd("a1", buyers=3, stock=2), "b2": calm("b2")}
    events = [event for shop in shops.values() for event in shop.history().events]
    runs = [run_of(shop, "none", "rush", attempts=name) for name, shop in shops.items()]
    parsed.clear()
    report_data(summary_of(*runs), events)
    assert parsed == {"_requests": 2, "_holds_by_handler": 2, "_commits": 2}


def test_page_and_report_have_one_palette_and_one_dom_js(tmp_path: Path) -> None:
    report = write_faults(tmp_path).read_text()
    look, dom = ((ASSETS / name).read_text() for name in ("look.css", "dom.js"))
    assert look in report
    assert re.sub("^export ", "", dom, flags=re.MULTILINE) in report
    own = [path for path in HERE.iterdir() if path.suffix in {".css", ".js"}]
    own += (ROOT / "shop" / "demo" / "static" / "shop").rglob("*.[cj]s*")
    assert len(own) > 10
    for path in own:
        assert "--ground:" not in path.read_text(), path
        assert "function icon(" not in path.read_text(), path


def test_text_that_looks_like_markup_stays_in_the_data(tmp_path: Path) -> None:
    plain = write_faults(tmp_path).read_text()
    page = write_faults(tmp_path, wrong=[HOSTILE], missing=HOSTILE)
    assert data_in(page)["runs"][0]["wrong"] == [HOSTILE]
    for tag in ("<script", "</script", "<img", "<!--"):
        assert page.read_text().count(tag) == plain.count(tag)


def test_the_page_names_the_licence_of_its_charts_and_asks_nobody(tmp_path: Path) -> None:
    page = write_faults(tmp_path).read_text()
    assert "Apache License" in page
    assert "Copyright 2017-2026 The Apache Software Foundation" in page
    assert "default-src 'none'" in page
    tags = re.sub(r"(<script[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert tags.count("<script") == 3
    assert not re.search(r"(src|href)=\"(?!data:,|#)", tags)
