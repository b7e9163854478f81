"""A history as operations, one JSON object an event, as Knossos and Porcupine take it.

    python -m loadtest.judge.export results/latest/history.jsonl            # every sale
    python -m loadtest.judge.export results/latest/history.jsonl --sale 7 --edn

    {"index": 0, "process": 0, "type": "invoke", "f": "buy", "value": null, "time": 81250, ...}
    {"index": 1, "process": 0, "type": "ok", "f": "buy", "value": "sold", "time": 93104, ...}

The model is a counter of units, n at first: `sold` is possible where n > 0 and makes it n - 1,
`sold_out` where n = 0. A refusal that sold nothing (`busy`, say) is of type `fail`: it did not
happen. `info` may have, at any time from then on. Every request is a process of its own, so no
process goes on after an `info`. A purchase answered again with its order sells nothing: left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadtest.judge.history import DAMAGED, Event, read
from loadtest.judge.intervals import ProductHistory, Request


class NotExported(ValueError):
    """A history from which no operations can be made. The message says what to do."""


def operations(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The operations of a history, oldest first; each names its sale and its attempt.

    Raises NotExported for a history with a damaged line.
    """
    damaged = [event for event in events if event["by"] == DAMAGED]
    if damaged:
        raise NotExported(damaged[0].get("what", "a line is no event; repeat the run"))
    sale_of: dict[str, int] = {}
    for event in events:
        if "attempt" in event and event.get("sale"):
            sale_of.setdefault(event["attempt"], event["sale"])
    found: list[dict[str, Any]] = []
    for process, request in enumerate(ProductHistory(events).requests):
        common = {"process": process, "f": "buy"}
        of = {"sale": sale_of.get(request.attempt, 0), "attempt": request.attempt}
        for type, value, time in _ends(request):
            found.append({**common, "type": type, "value": value, "time": time, **of})
    found.sort(key=lambda operation: int(operation["time"]))
    return [{"index": index, **operation} for index, operation in enumerate(found)]


def _ends(request: Request) -> Iterator[tuple[str, str | None, int]]:
    """The beginning of an operation and its end, if it has one: type, value, time."""
    if request.replayed:
        return
    yield "invoke", None, request.sent
    if request.answered is not None:
        done = request.outcome in {"sold", "sold_out"}
        type = "ok" if done else "info" if request.type == "info" else "fail"
        yield type, request.outcome if done else None, request.answered


def edn(operation: dict[str, Any]) -> str:
    """An operation in the notation that Knossos reads."""
    words = {"type", "f", "value"}
    parts = []
    for name, value in operation.items():
        text = "nil" if value is None else json.dumps(value)
        if name in words and value is not None:
            text = f":{value}".replace("_", "-")
        parts.append(f":{name} {text}")
    return f"{{{', '.join(parts)}}}"


def main(arguments: Sequence[str]) -> int:
    """Print the operations. Returns 0, or 2 for a file that cannot be read or exported."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.judge.export",
        description="Print a history as operations, one an event, for Knossos or Porcupine.",
    )
    parser.add_argument("file", type=Path, help="a history.jsonl")
    parser.add_argument("--sale", type=int, help="of this sale alone")
    parser.add_argument("--edn", action="store_true", help="EDN instead of JSON")
    given = parser.parse_args(arguments)
    try:
        found = operations(read([given.file]))
    except (OSError, NotExported) as error:
        print(f"{given.file} cannot be exported: {error}", file=sys.stderr)
        return 2
    for operation in found:
        if given.sale in (None, operation["sale"]):
            print(edn(operation) if given.edn else json.dumps(operation))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
