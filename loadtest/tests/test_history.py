"""The history that a run writes, and what is read from it."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from loadtest.judge.history import (
    DAMAGED,
    History,
    Reader,
    by_product,
    read,
)
from loadtest.tests.happenings import Happenings


def test_an_event_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "buyers.jsonl"
    who = {"by": "buyer", "f": "buy", "attempt": "a/victim", "product": "pause-token"}
    before = time.monotonic_ns()
    with History(path) as history:
        history.record(type="invoke", **who)
    [event] = read([path])
    assert before <= event["t"] <= time.monotonic_ns()
    assert event == {**who, "type": "invoke", "t": event["t"]}


def test_events_of_several_processes_are_merged_by_time(tmp_path: Path) -> None:
    for name, times in {"a": (1, 4), "b": (2, 3)}.items():
        with History(tmp_path / name) as history:
            for t in times:
                history.record(by="fault", f=name, type="ok", t=t)
    assert [event["f"] for event in read([tmp_path / "a", tmp_path / "b"])] == ["a", "b", "b", "a"]


def test_threads_and_processes_that_record_at_once_write_whole_lines(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def record() -> None:
        with History(tmp_path / "h") as history:
            together.wait()
            for number in range(200):
                history.record(by="node", f="after_read", type="ok", attempt="a", amount=number)

    threads = [threading.Thread(target=record) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read([tmp_path / "h"])) == 1600


def test_a_torn_last_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path) as history:
        history.record(by="node", f="acquire", type="invoke", attempt="a")
        history.record(by="node", f="acquired", type="ok", attempt="a", token="5f")
    path.write_bytes(path.read_bytes()[:-9])
    assert [event["f"] for event in read([path])] == ["acquire"]


@pytest.mark.parametrize(
    "line",
    [
        *('{"t": 1, "by', "[]", '{"by": "node"}', "17", "\x00\x00", ""),
        '{"t": "now", "by": "node", "f": "x", "type": "ok"}',
        '{"t": 7, "by": "node", "f": "after_read", "type": "ok", "amount": "many"}',
        *(f'{{"t": 7, "by": "{who}", "f": "acquired", "type": "ok"}}' for who in ("buyer", "node")),
    ],
)
def test_a_line_that_is_no_event_becomes_one_that_says_so(tmp_path: Path, line: str) -> None:
    whole = json.dumps({"t": 7, "by": "node", "f": "x", "type": "ok", "attempt": "a"})
    path = tmp_path / "h"
    path.write_text(f"{whole}\n{line}\n{whole}\n")
    events = read([path])
    assert [event["by"] for event in events] == ["node", DAMAGED, "node"]
    assert events[1]["t"] == 7
    assert "h has a line that is no event" in events[1]["what"]
    assert "repeat the run" in events[1]["what"]


def test_events_are_sorted_by_product() -> None:
    def buyer(attempt: str, product: str) -> dict[str, Any]:
        return {"by": "buyer", "f": "buy", "type": "invoke", "attempt": attempt, "product": product}

    node = {"by": "node", "f": "after_read", "type": "ok"}
    fault = {"by": "fault", "f": "restart", "type": "ok", "phase": "heal"}
    damaged = {"by": DAMAGED, "f": "line", "type": "fail"}
    events: list[Any] = [
        {**node, "attempt": "1"},  # recorded before its buyer's own line
        buyer("1", "apple"),
        buyer("2", "pear"),
        fault,
        {**fault, "product": "pear"},
        {**node, "attempt": "2"},
        {**node, "attempt": "nobody's", "lock_name": "redis:pear"},
        {**node, "attempt": "nobody's either"},
        {**node, "attempt": "late, of the run before"},
        damaged,
    ]
    before: Any = [buyer("late, of the run before", "plum")]
    assert by_product(events, earlier=before) == {
        "apple": [events[0], events[1], events[3], events[7], damaged],
        "pear": [*events[2:8], damaged],
    }


def test_the_product_of_a_key_is_the_one_that_its_buyer_asked_for() -> None:
    asks: Any = {"by": "buyer", "f": "buy", "type": "invoke", "attempt": "1", "product": "apple"}
    begins: Any = {"by": "node", "f": "begins", "type": "invoke", "attempt": "1", "product": "pear"}
    assert by_product([asks, begins]) == {"apple": [asks, begins]}


def test_a_reader_returns_every_line_once_while_the_histories_grow(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    assert reader.new_events() == []
    with History(tmp_path / "a.jsonl") as one, History(tmp_path / "b.jsonl") as other:
        one.record(by="fault", f="second", type="ok", t=2)
        other.record(by="fault", f="first", type="ok", t=1)
        assert [event["f"] for event in reader.new_events()] == ["first", "second"]
        assert reader.new_events() == []
        with (tmp_path / "a.jsonl").open("ab") as file:
            file.write(b'{"t": 3, "by": "fault", "f": "torn"')
            file.flush()
            assert reader.new_events() == []
            file.write(b', "type": "ok"}\n')
        assert [event["f"] for event in reader.new_events()] == ["torn"]


def test_a_request_without_an_answer_is_an_open_one() -> None:
    shop = Happenings()
    shop.asks(0, "victim")
    shop.asks(5, "victim")
    shop.answered(9, "victim", "busy")
    first, second = shop.history().requests
    assert (first.sent, first.answered, first.type) == (0, None, "info")
    assert (second.sent, second.answered, second.type) == (5_000_000, 9_000_000, "fail")


def test_an_answer_to_no_open_request_is_ignored() -> None:
    shop = Happenings()
    shop.asks(0, "victim")
    shop.answered(5, "victim", "sold", 31)
    shop.answered(6, "victim", "busy")
    [request] = shop.history().requests
    assert (request.outcome, request.order) == ("sold", 31)


def test_a_hold_ends_where_its_release_begins() -> None:
    shop = Happenings()
    shop.buys(0, "victim", 2, fence=7)
    [hold] = shop.history().holds
    assert (hold.asked, hold.start, hold.end) == (1_000_000, 2_000_000, 6_000_000)
    assert (hold.fence, hold.released) == (7, True)


def test_a_hold_whose_release_was_not_recorded_ends_before_the_next_wait() -> None:
    shop = Happenings()
    shop.acquires(1, 2, "victim")
    shop.reads(3, "victim", 2)
    shop.at(500, "victim", "acquire", "invoke")
    shop.at(600, "victim", "reentrant:before_subscribe")
    first = shop.history().holds[0]
    assert (first.end, first.released) == (3_000_000, False)


def test_a_commit_knows_the_last_read_before_it() -> None:
    shop = Happenings()
    shop.reads(1, "victim", 10)
    shop.reads(2, "rival", 10)
    shop.reads(3, "victim", 9)
    shop.commits(5, "victim", 9)
    [commit] = shop.history().commits
    assert (commit.read_at, commit.amount) == (3_000_000, 9)
    assert (commit.begun, commit.done) == (5_000_000, 5_500_000)
