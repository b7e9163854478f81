"""The history of a run: buyers, nodes and faults record each event as one line of JSON.

    {"t": 81250, "by": "buyer", "f": "buy", "type": "invoke", "attempt": "7c/pause/token/victim"}
    {"t": 81907, "by": "node", "f": "acquired", "type": "ok", "token": "5f1c", "fence": 7, ...}
    {"t": 82113, "by": "fault", "f": "pause", "type": "invoke", "phase": "fire", "what": "..."}

`f` is the operation, as in Jepsen's histories. `invoke` begins an operation. `ok` means that the
operation happened, `fail` that it certainly did not, and `info` that it may have happened. If only
the `invoke` of an operation is recorded, it may have happened, too.

Times are time.monotonic_ns(). All processes of a host share that clock, so events from several
files can be sorted by their times.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Required, Self, TypedDict, cast, get_type_hints

#: One encoder for all events: json.dumps() would make a new encoder for each event.
_encode = json.JSONEncoder(separators=(",", ":")).encode
#: The value of `by` in the event that replaces a damaged line. With such an event the verdict is
#: `unknown`, or `oversold` if the orders show that.
DAMAGED = "damaged"
#: The values of `by`: the recorders of events.
RECORDERS = frozenset({"buyer", "node", "fault", DAMAGED})
#: A line with a greater time is damaged. The judge converts times to floating-point numbers, which
#: fails for huge numbers.
MAX_TIME_NS = 2**63 - 1


class Event(TypedDict, total=False):
    """One line of a history.

    Which of the optional fields an event has depends on `by` and `f`; docs/history.md lists them. A
    line that has a field of a wrong type is damaged.
    """

    t: Required[int]
    by: Required[str]
    type: Required[str]
    f: Required[str]
    attempt: str
    lock: str
    lock_name: str | None
    product: str
    sale: int | None
    sold_in: int | None
    stock_seen: int | None
    node: str
    pid: int
    thread: int
    outcome: str | None
    order: int | str | None  # only a third-party shop has numbers that are text
    replayed: bool
    released: str
    error: str | None
    token: str
    fence: int | None
    amount: int
    phase: str
    what: str


EVENT_FIELD_TYPES = get_type_hints(Event)


class History:
    """Appends events to a file. Several threads and processes may append to one file.

    Each event is one write with O_APPEND, so lines are never mixed and a process that is killed
    leaves no event in a buffer.
    """

    def __init__(self, path: Path | str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)

    def record(self, *, by: str, f: str, type: str, **fields: Any) -> None:
        """Append one event, at the present time unless `fields` have a `t`. Raises OSError."""
        event = {"t": time.monotonic_ns(), "by": by, "f": f, "type": type, **fields}
        line = _encode(event).encode() + b"\n"
        if os.write(self._file, line) != len(line):
            raise OSError(
                "an event was written only in part: free space on the disk, then repeat the run"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def read(paths: Iterable[Path | str]) -> list[Event]:
    """Return the events of all files, oldest first. Raises OSError.

    A damaged line becomes an event with DAMAGED as `by`. A last line without a newline is skipped:
    the process was killed while it wrote the line.
    """
    events: list[Event] = []
    for path in map(Path, paths):
        events += _parse(path, path.read_bytes())
    return _sort_by_time(events)


def _sort_by_time(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=itemgetter("t"))


class Reader:
    """Reads the histories of a folder while they grow. Each line is read once.

    Threads may share a reader.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets: dict[Path, int] = {}
        self._events: list[Event] = []
        self._returned_count = 0
        self._lock = threading.Lock()

    def read_new_events(self) -> list[Event]:
        """Return the events since the last call, oldest first. Raises OSError."""
        with self._lock:
            self._read_new_lines()
            new_events = self._events[self._returned_count :]
            self._returned_count = len(self._events)
        return _sort_by_time(new_events)

    def events(self) -> list[Event]:
        """Return all events so far, oldest first. Raises OSError."""
        with self._lock:
            self._read_new_lines()
            return _sort_by_time(self._events)

    def _read_new_lines(self) -> None:
        """Add the events of all new lines. A line without its newline is left for the next call."""
        for path in self.folder.glob("*.jsonl"):
            offset = self._offsets.get(path, 0)
            with path.open("rb") as file:
                file.seek(offset)
                new_bytes = file.read()
            whole_lines = new_bytes[: new_bytes.rfind(b"\n") + 1]
            self._offsets[path] = offset + len(whole_lines)
            self._events += _parse(path, whole_lines)


def write(path: Path, events: Iterable[Event]) -> None:
    """Write events as one history. Raises OSError."""
    path.write_text("".join(f"{_encode(event)}\n" for event in events))


def _parse(path: Path, lines: bytes) -> Iterator[Event]:
    """Yield an event for each whole line.

    The event of a damaged line has the time of the line before; 0 if there is no line before.
    """
    *whole_lines, _ = lines.split(b"\n")
    last_time = 0
    for line in whole_lines:
        event = _parse_line(line)
        if event is None:
            problem = f"{path.name} has a line that is not an event: {line[:80]!r}; repeat the run"
            event = {"t": last_time, "by": DAMAGED, "type": "fail", "f": "line", "what": problem}
        last_time = event["t"]
        yield event


def _parse_line(line: bytes) -> Event | None:
    """Return the event of a line; None if the line is damaged."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast(Event, event) if _is_event(event) else None


def _is_event(parsed_line: Any) -> bool:
    """Return whether a line has all required fields, and no field of a wrong type.

    An event of a buyer or a node must also have an `attempt`. No time may be negative or above
    MAX_TIME_NS, and `by` is one of RECORDERS.
    """
    if not isinstance(parsed_line, dict) or not parsed_line.keys() >= Event.__required_keys__:
        return False
    for name, value in parsed_line.items():
        if not isinstance(value, EVENT_FIELD_TYPES.get(name, object)):
            return False
    has_attempt = "attempt" in parsed_line or parsed_line["by"] not in {"buyer", "node"}
    is_in_range = 0 <= parsed_line["t"] <= MAX_TIME_NS
    return has_attempt and is_in_range and parsed_line["by"] in RECORDERS


def group_by_product(
    events: Sequence[Event], earlier: Sequence[Event] = ()
) -> dict[str, list[Event]]:
    """Return product -> its events, oldest first, for each product of an attempt in `events`.

    An event of an attempt belongs to the product in the attempt's first event that has a product.
    If no event has one, the product is taken from the name of the event's lock. An event of a fault
    or a damaged line belongs to the product in its field `product`. An event without any product
    belongs to all products.

    earlier  the events before `events`. They show the products of attempts that began before
             `events`. But the keys of the result come from `events` only: if an attempt has a
             product that is not among them, its events are left out
    """
    products = _map_attempts_to_products(events)
    events_by_product: dict[str, list[Event]] = {product: [] for product in products.values()}
    all_products = _map_attempts_to_products(earlier) | products
    for event in events:
        product = event.get("product")
        if event["by"] not in {"fault", DAMAGED}:
            # The name of a lock is `<strategy>:<product>`.
            locked_product = (event.get("lock_name") or "").partition(":")[2]
            product = all_products.get(event.get("attempt", ""), locked_product or product)
        if product is None:
            for product_events in events_by_product.values():
                product_events.append(event)
        elif product in events_by_product:
            events_by_product[product].append(event)
    return events_by_product


def _map_attempts_to_products(events: Sequence[Event]) -> dict[str, str]:
    """Return attempt -> product, from the first event of the attempt that has a product."""
    return {
        event["attempt"]: event["product"]
        for event in reversed(events)  # reversed: an earlier event overwrites a later one
        if "product" in event and "attempt" in event
    }
