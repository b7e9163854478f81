"""The history of a run: one JSON object a line, told by buyers, nodes and faults as things happen.

    {"t": 81250, "by": "buyer", "f": "buy", "type": "invoke", "attempt": "7c/pause/token/victim"}
    {"t": 81907, "by": "node", "f": "acquired", "type": "ok", "token": "5f1c", "fence": 7, ...}
    {"t": 82113, "by": "fault", "f": "pause", "type": "invoke", "phase": "fire", "what": "..."}

Times are time.monotonic_ns(): one clock for all processes of a Linux host, so files of different
processes are merged by it. `invoke` begins something; `ok` means that it happened, `fail` that it
certainly did not, `info` that nobody knows, and so does an end that is missing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Required, Self, TypedDict

#: Made once: json.dumps with other separators makes an encoder for each call.
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Event(TypedDict, total=False):
    """One line. Which of the fields are there follows from `by` and `f`.

    t      nanoseconds of the monotonic clock
    by     buyer, node or fault
    type   invoke, ok, fail or info
    f      buyer: buy; node: acquire, acquired, after_read, before_commit, after_commit, release,
           released and other named points; fault: its name
    phase  of a fault: arm, fire, prove or heal; `what` is a sentence
    """

    t: Required[int]
    by: Required[str]
    type: Required[str]
    f: Required[str]
    attempt: str
    lock: str
    product: str
    node: str
    pid: int
    outcome: str
    order: int
    replayed: bool
    token: str
    fence: int | None
    waited_ms: float
    held_ms: float
    amount: int
    phase: str
    what: str


class BrokenHistory(ValueError):
    """A line inside a history is no event: the file is damaged, or of something else. Nothing can
    be judged by it; repeat the run with a fresh results folder."""


class History:
    """Appends events to a file, from any thread, and from several processes at once.

    One write to a descriptor opened with O_APPEND is one line: it is never mixed with another, and
    of a process that is killed nothing is left in a buffer.
    """

    def __init__(self, path: Path | str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)

    def tell(self, *, by: str, f: str, type: str, **fields: Any) -> None:
        """Append one event with the time of now, or with the `t` that is given. Raises OSError."""
        event = {"t": time.monotonic_ns(), "by": by, "f": f, "type": type, **fields}
        line = _encode(event).encode() + b"\n"
        if os.write(self._file, line) != len(line):
            raise OSError("half an event was written: make room on the disk, and repeat the run")

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read(paths: Iterable[Path | str]) -> list[Event]:
    """The events of all files, oldest first. Raises BrokenHistory, OSError.

    A last line without its end is what a killed process left: it is passed over.
    """
    return sorted((event for path in paths for event in _lines(Path(path))), key=lambda e: e["t"])


def write(path: Path, events: Iterable[Event]) -> None:
    """Keep these events as a history of their own. Raises OSError."""
    path.write_text("".join(f"{_encode(event)}\n" for event in events))


def _lines(path: Path) -> Iterator[Event]:
    *whole, _torn = path.read_bytes().split(b"\n")
    for number, line in enumerate(whole, start=1):
        try:
            event = json.loads(line)
            event["t"], event["by"], event["type"], event["f"]
        except (ValueError, TypeError, KeyError) as error:
            reason = " ".join((BrokenHistory.__doc__ or "").split())
            raise BrokenHistory(f"{path}, line {number}: {line[:80]!r}. {reason}") from error
        yield event


def by_product(events: Iterable[Event]) -> dict[str, list[Event]]:
    """What concerns each product, in the order given: its buyers' events, those of the nodes that
    served their attempts, and the faults, which concern all products unless they name one."""
    events = list(events)
    product_of = {e["attempt"]: e["product"] for e in events if "product" in e and "attempt" in e}
    found: dict[str, list[Event]] = {product: [] for product in product_of.values()}
    for event in events:
        if event["by"] == "fault":
            named = event.get("product")
            concerned = list(found) if named is None else [named]
        else:
            concerned = [product_of.get(event.get("attempt", ""), "")]
        for product in concerned:
            if product in found:
                found[product].append(event)
    return found


@dataclass(slots=True)
class Request:
    """A buyer asked once. `answered` is None, and `type` info, where no answer was recorded."""

    attempt: str
    sent: int
    answered: int | None = None
    type: str = "info"
    outcome: str = "unknown"
    order: int | None = None

    def answer(self, outcome: str, order: int | None) -> None:
        """It was answered just now. What may have happened is `info`."""
        self.answered = time.monotonic_ns()
        self.type = {"sold": "ok", "unknown": "info"}.get(outcome, "fail")
        self.outcome = outcome
        self.order = order


@dataclass(slots=True)
class Hold:
    """One grant of a lock, for as long as its holder certainly believed to have it.

    asked  when it asked for the lock; 0 where that was not told
    start  when it had the lock
    end    when it began to release it; of a holder that never did, its last sign of life
    """

    attempt: str
    node: str
    token: str
    fence: int | None
    asked: int
    start: int
    end: int
    released: bool = False


@dataclass(slots=True)
class Commit:
    """A node was about to commit an order. `amount` is the stock that it had read last before,
    `order` the number that the order has if the commit came about."""

    attempt: str
    begun: int
    read_at: int | None = None
    amount: int | None = None
    done: int | None = None
    order: int | None = None


def requests(events: Sequence[Event]) -> list[Request]:
    """What the buyers of one product asked, in the order in which they asked."""
    found: list[Request] = []
    open_: dict[str, Request] = {}
    for event in events:
        if event["by"] != "buyer":
            continue
        attempt = event["attempt"]
        if event["type"] == "invoke":
            open_[attempt] = Request(attempt, event["t"])
            found.append(open_[attempt])
        elif attempt in open_:
            asked = open_.pop(attempt)
            asked.answered = event["t"]
            asked.type = event["type"]
            asked.outcome = event.get("outcome", "unknown")
            asked.order = event.get("order")
    return found


#: Who handles an attempt: node, pid, attempt. A repeated attempt may be with two at once.
_Handler = tuple[str, int, str]


def _handled(events: Sequence[Event]) -> Iterator[tuple[_Handler, Event]]:
    for event in events:
        if event["by"] == "node":
            yield (event.get("node", ""), event.get("pid", 0), event["attempt"]), event


def holds(events: Sequence[Event]) -> list[Hold]:
    """Every grant of one product's lock, in the order of their starts."""
    found: list[Hold] = []
    asked: dict[_Handler, int] = {}
    open_: dict[_Handler, Hold] = {}
    for handler, event in _handled(events):
        hold = open_.get(handler)
        if event["f"] == "acquire":
            asked[handler] = event["t"]
            open_.pop(handler, None)
        elif event["f"] == "acquired" and event["type"] == "ok":
            hold = Hold(
                attempt=event["attempt"],
                node=event.get("node", ""),
                token=event.get("token", ""),
                fence=event.get("fence"),
                asked=asked.pop(handler, 0),
                start=event["t"],
                end=event["t"],
            )
            open_[handler] = hold
            found.append(hold)
        elif hold is not None:
            hold.end = event["t"]
            if event["f"] in {"release", "released"}:
                hold.released = True
                open_.pop(handler)
    return found


def commits(events: Sequence[Event]) -> list[Commit]:
    """Every commit of one product that a node told of, in the order in which they began."""
    found: list[Commit] = []
    reads: dict[_Handler, Event] = {}
    open_: dict[_Handler, Commit] = {}
    for handler, event in _handled(events):
        if event["f"] == "after_read":
            reads[handler] = event
        elif event["f"] == "before_commit":
            seen = reads.get(handler)
            commit = Commit(event["attempt"], event["t"], order=event.get("order"))
            if seen is not None:
                commit.read_at, commit.amount = seen["t"], seen.get("amount")
            open_[handler] = commit
            found.append(commit)
        elif event["f"] == "after_commit" and handler in open_:
            open_.pop(handler).done = event["t"]
    return found
