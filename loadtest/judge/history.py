"""The history of a run: buyers, nodes and faults record each event as one line of JSON.

    {"t": 81250, "by": "buyer", "f": "buy", "type": "invoke", "attempt": "7c/pause/token/victim"}
    {"t": 81907, "by": "node", "f": "acquired", "type": "ok", "token": "5f1c", "fence": 7, ...}
    {"t": 82113, "by": "fault", "f": "pause", "type": "invoke", "phase": "fire", "what": "..."}

Times are time.monotonic_ns(). All processes of a host share that clock, so events from several
files are merged by it. `invoke` begins something. `ok` means that it happened, `fail` that it
certainly did not, `info` that it may have; an end that is missing means `info` too.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Required, Self, TypedDict, cast, get_type_hints

#: json.dumps with other separators would make an encoder for each call.
_encode = json.JSONEncoder(separators=(",", ":")).encode


#: `by` of what replaces a line that is not an event. With one, the judge concludes nothing.
DAMAGED = "damaged"


class Event(TypedDict, total=False):
    """One line. `by` and `f` decide which fields it has: docs/history.md has all of them. A line
    whose value of one of these has another type is damaged."""

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
    order: int | str | None  # text only from a shop that is not ours
    replayed: bool
    released: str
    error: str | None
    token: str
    fence: int | None
    amount: int
    phase: str
    what: str


TYPES = get_type_hints(Event)


class History:
    """Appends events to a file, from any thread and from several processes at once.

    Each event is one write with O_APPEND: lines are never mixed, and a killed process leaves none
    in a buffer.
    """

    def __init__(self, path: Path | str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)

    def record(self, *, by: str, f: str, type: str, **fields: Any) -> None:
        """Append one event, at the present time or at the `t` given. Raises OSError."""
        event = {"t": time.monotonic_ns(), "by": by, "f": f, "type": type, **fields}
        line = _encode(event).encode() + b"\n"
        if os.write(self._file, line) != len(line):
            raise OSError("half an event was written: make room on the disk and repeat the run")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def read(paths: Iterable[Path | str]) -> list[Event]:
    """The events of all files, oldest first. Raises OSError.

    A line that is not an event becomes an event that says so (DAMAGED). A last line without its end
    is skipped: a killed process left it.
    """
    found = [event for path in paths for event in _parse(Path(path), Path(path).read_bytes())]
    return sorted(found, key=lambda event: event["t"])


class Reader:
    """Reads the histories of a folder while they grow, every line once. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets: dict[Path, int] = {}
        self._found: list[Event] = []
        self._returned = 0
        self._reading = threading.Lock()

    def new_events(self) -> list[Event]:
        """The events since the last call, oldest first; see `read`. Raises OSError."""
        with self._reading:
            new = self._read()[self._returned :]
            self._returned += len(new)
        return sorted(new, key=lambda event: event["t"])

    def events(self) -> list[Event]:
        """All events so far, oldest first. Raises OSError."""
        with self._reading:
            return sorted(self._read(), key=lambda event: event["t"])

    def _read(self) -> list[Event]:
        """All events so far, as they were found."""
        for path in self.folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                whole = file.read()
            whole = whole[: whole.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            self._found += _parse(path, whole)
        return self._found


def write(path: Path, events: Iterable[Event]) -> None:
    """Write these events as one history. Raises OSError."""
    path.write_text("".join(f"{_encode(event)}\n" for event in events))


def _parse(path: Path, data: bytes) -> Iterator[Event]:
    *whole, _torn = data.split(b"\n")
    last = 0
    for line in whole:
        event = _event(line)
        if event is None:
            what = f"{path.name} has a line that is no event: {line[:80]!r}; repeat the run"
            event = {"t": last, "by": DAMAGED, "type": "fail", "f": "line", "what": what}
        last = event["t"]
        yield event


def _event(line: bytes) -> Event | None:
    """The event of a line; None if the line is not an event."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    is_one = (
        isinstance(event, dict)
        and event.keys() >= Event.__required_keys__
        and all(isinstance(value, TYPES.get(name, object)) for name, value in event.items())
        and ("attempt" in event or event["by"] not in {"buyer", "node"})
        and event["t"] >= 0
    )
    return cast(Event, event) if is_one else None


def by_product(events: Sequence[Event], earlier: Sequence[Event] = ()) -> dict[str, list[Event]]:
    """The events of each product, in the order given: those of its buyers, those of the nodes that
    served them, and the faults and damaged lines, which belong to all products unless they name
    one. What a node did for a key that nobody sent belongs to the product whose lock it took, else
    to all.

    earlier  what was recorded before: the keys in it were sent, and what is late of them is dropped
    """
    product_of = _product_of(events)
    found: dict[str, list[Event]] = {product: [] for product in product_of.values()}
    product_of = _product_of(earlier) | product_of
    for event in events:
        named = event.get("product")
        if event["by"] not in {"fault", DAMAGED}:
            lock_name = event.get("lock_name") or ""
            named = product_of.get(event.get("attempt", ""), lock_name.partition(":")[2] or named)
        for product in list(found) if named is None else [named]:
            if product in found:
                found[product].append(event)
    return found


def _product_of(events: Sequence[Event]) -> dict[str, str]:
    """The product that each attempt is for: the first word counts, which is its buyer's."""
    named = [event for event in events if "product" in event and "attempt" in event]
    return {event["attempt"]: event["product"] for event in reversed(named)}
