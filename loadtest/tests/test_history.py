"""The history of a run, files with an event in each line, and how it is written and read."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from loadtest.judge.history import DAMAGED, History, Reader, group_by_product, read


def test_events_of_several_processes_are_merged_by_time(tmp_path: Path) -> None:
    """Each process writes its own file. The events of all files are read in the order of time."""
    times_by_file = {"a": (1, 4), "b": (2, 3)}
    for name, times in times_by_file.items():
        with History(tmp_path / name) as history:
            for time in times:
                history.record(by="fault", f=name, type="ok", t=time)
    assert [event["f"] for event in read([tmp_path / "a", tmp_path / "b"])] == ["a", "b", "b", "a"]


def test_threads_that_record_at_once_write_whole_lines(tmp_path: Path) -> None:
    """Each thread opens the same file for itself, as several processes do."""
    thread_count = 8
    events_per_thread = 200
    barrier = threading.Barrier(thread_count)

    def record() -> None:
        with History(tmp_path / "history.jsonl") as history:
            barrier.wait()
            for number in range(events_per_thread):
                history.record(by="node", f="after_read", type="ok", attempt="a", amount=number)

    threads = [threading.Thread(target=record) for _ in range(thread_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read([tmp_path / "history.jsonl"])) == thread_count * events_per_thread


def test_torn_last_line_is_skipped(tmp_path: Path) -> None:
    """A process is killed while it writes its last line. The reader leaves this line out."""
    path = tmp_path / "history.jsonl"
    with History(path) as history:
        history.record(by="node", f="acquire", type="invoke", attempt="a")
        history.record(by="node", f="acquired", type="ok", attempt="a", token="5f")
    path.write_bytes(path.read_bytes()[:-9])  # the end of the second line is missing
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
        '{"t": 1' + 400 * "0" + ', "by": "fault", "f": "x", "type": "ok"}',
        100_000 * "[",
        '{"t": 7, "by": "x", "f": "reserve", "type": "ok"}',
    ],
    ids=lambda line: line[:40],
)
def test_damaged_line_becomes_a_damaged_event(tmp_path: Path, line: str) -> None:
    """The line is read as an event with `by` = DAMAGED, and with the time of the line before."""
    whole_line = json.dumps({"t": 7, "by": "node", "f": "x", "type": "ok", "attempt": "a"})
    path = tmp_path / "history.jsonl"
    path.write_text(f"{whole_line}\n{line}\n{whole_line}\n")
    events = read([path])
    assert [event["by"] for event in events] == ["node", DAMAGED, "node"]
    assert events[1]["t"] == 7
    assert "history.jsonl has a line that is not an event" in events[1]["what"]
    assert "repeat the run" in events[1]["what"]


def test_events_are_grouped_by_product() -> None:
    """An event belongs to the product of its request, of its lock or of its field `product`.

    If it has none of these, it is in the group of every product. A late read, whose request was
    sent in an earlier run, is in no group.
    """

    def make_request(attempt: str, product: str) -> Any:
        return {"by": "buyer", "f": "buy", "type": "invoke", "attempt": attempt, "product": product}

    def make_read(attempt: str, **fields: str) -> Any:
        return {"by": "node", "f": "after_read", "type": "ok", "attempt": attempt, **fields}

    apple_request = make_request("1", "apple")
    apple_read = make_read("1")
    pear_request = make_request("2", "pear")
    pear_read = make_read("2")
    read_without_request_under_lock = make_read("no request, a lock", lock_name="redis:pear")
    read_without_request = make_read("no request")
    late_read = make_read("earlier")
    earlier_request = make_request("earlier", "plum")
    fault: Any = {"by": "fault", "f": "restart", "type": "ok", "phase": "heal"}
    pear_fault: Any = {**fault, "product": "pear"}
    damaged_event: Any = {"by": DAMAGED, "f": "line", "type": "fail"}
    events = [
        apple_read,  # recorded before the request
        apple_request,
        pear_request,
        fault,
        pear_fault,
        pear_read,
        read_without_request_under_lock,
        read_without_request,
        late_read,
        damaged_event,
    ]
    assert group_by_product(events, earlier=[earlier_request]) == {
        "apple": [apple_read, apple_request, fault, read_without_request, damaged_event],
        "pear": [
            pear_request,
            fault,
            pear_fault,
            pear_read,
            read_without_request_under_lock,
            read_without_request,
            damaged_event,
        ],
    }


def test_reader_returns_each_line_once(tmp_path: Path) -> None:
    """The files grow between two reads. A line is returned only after its end was written."""
    reader = Reader(tmp_path)
    assert reader.read_new_events() == []
    with History(tmp_path / "a.jsonl") as first, History(tmp_path / "b.jsonl") as second:
        first.record(by="fault", f="late", type="ok", t=2)
        second.record(by="fault", f="early", type="ok", t=1)
        assert [event["f"] for event in reader.read_new_events()] == ["early", "late"]
        assert reader.read_new_events() == []
        with (tmp_path / "a.jsonl").open("ab") as file:
            file.write(b'{"t": 3, "by": "fault", "f": "torn"')
            file.flush()
            assert reader.read_new_events() == []
            file.write(b', "type": "ok"}\n')
        assert [event["f"] for event in reader.read_new_events()] == ["torn"]
