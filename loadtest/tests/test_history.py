"""The history that a run writes, and the events that are read from it."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from loadtest.judge.history import DAMAGED, History, Reader, group_by_product, read


def test_events_of_several_processes_are_merged_by_time(tmp_path: Path) -> None:
    for name, times in {"a": (1, 4), "b": (2, 3)}.items():
        with History(tmp_path / name) as history:
            for t in times:
                history.record(by="fault", f=name, type="ok", t=t)
    assert [event["f"] for event in read([tmp_path / "a", tmp_path / "b"])] == ["a", "b", "b", "a"]


def test_threads_that_record_at_once_write_whole_lines(tmp_path: Path) -> None:
    """Each thread has a file descriptor, as if it were a process."""
    barrier = threading.Barrier(8)

    def record() -> None:
        with History(tmp_path / "h") as history:
            barrier.wait()
            for number in range(200):
                history.record(by="node", f="after_read", type="ok", attempt="a", amount=number)

    threads = [threading.Thread(target=record) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read([tmp_path / "h"])) == 1600


def test_torn_last_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path) as history:
        history.record(by="node", f="acquire", type="invoke", attempt="a")
        history.record(by="node", f="acquired", type="ok", attempt="a", token="5f")
    path.write_bytes(path.read_bytes()[:-9])
    assert [event["f"] for event in read([path])] == ["acquire"]


@pytest.mark.parametrize(
    "line",
    [
        '{"t": 1, "by',
        "[]",
        '{"by": "node"}',
        "17",
        "\x00\x00",
        "",
        '{"t": "now", "by": "node", "f": "x", "type": "ok"}',
        '{"t": 7, "by": "node", "f": "after_read", "type": "ok", "amount": "many"}',
        '{"t": 7, "by": "buyer", "f": "acquired", "type": "ok"}',
        '{"t": 7, "by": "node", "f": "acquired", "type": "ok"}',  # no attempt
    ],
)
def test_damaged_line_becomes_a_damaged_event(tmp_path: Path, line: str) -> None:
    whole_line = json.dumps({"t": 7, "by": "node", "f": "x", "type": "ok", "attempt": "a"})
    path = tmp_path / "h"
    path.write_text(f"{whole_line}\n{line}\n{whole_line}\n")
    events = read([path])
    assert [event["by"] for event in events] == ["node", DAMAGED, "node"]
    assert events[1]["t"] == 7
    assert "h has a line that is not an event" in events[1]["what"]
    assert "repeat the run" in events[1]["what"]


def test_events_are_grouped_by_product() -> None:
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
        {**node, "attempt": "unknown, under a lock", "lock_name": "redis:pear"},
        {**node, "attempt": "unknown"},
        {**node, "attempt": "late, of the run before"},
        damaged,
    ]
    earlier: Any = [buyer("late, of the run before", "plum")]
    assert group_by_product(events, earlier=earlier) == {
        "apple": [events[0], events[1], events[3], events[7], damaged],
        "pear": [*events[2:8], damaged],
    }


def test_reader_returns_each_line_once(tmp_path: Path) -> None:
    """The files grow between the reads."""
    reader = Reader(tmp_path)
    assert reader.new_events() == []
    with History(tmp_path / "a.jsonl") as first, History(tmp_path / "b.jsonl") as second:
        first.record(by="fault", f="late", type="ok", t=2)
        second.record(by="fault", f="early", type="ok", t=1)
        assert [event["f"] for event in reader.new_events()] == ["early", "late"]
        assert reader.new_events() == []
        with (tmp_path / "a.jsonl").open("ab") as file:
            file.write(b'{"t": 3, "by": "fault", "f": "torn"')
            file.flush()
            assert reader.new_events() == []
            file.write(b', "type": "ok"}\n')
        assert [event["f"] for event in reader.new_events()] == ["torn"]
