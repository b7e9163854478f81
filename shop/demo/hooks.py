"""What a demo may do to the shop, and nothing else may: SHOP_DEMO=1.

Pauses at points, for everybody; and, with a folder to record into (SHOP_DEMO_HISTORY), a history
of what each purchase did and stops for single ones. A buyer who sends `Demo-Stop: after_read`
stops at that point: the file at/<key>@after_read appears in the folder, and the buyer goes on when
the file go/<key>@after_read does. Files, because everything else may be down or cut off.

In a folder with at/ an event is written as it happens: the process may be killed the moment after.
Without at/ nobody stops, and what a purchase did is written when it is over: a write under the lock
lets another thread run, and the rush would be slower for being watched.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from shop.demo import steps
from shop.sale import points

#: Seconds after which a stopped purchase goes on by itself, and how often it looks.
LONGEST_STOP = 30.0
LOOK_EVERY = 0.005
#: What begins, and may still fail; everything else has happened.
BEGINS = {"begins", "acquire", "reserve", "before_commit", "release"}


@dataclass(frozen=True, slots=True)
class TracedPurchase:
    """One request of a purchase: its Idempotency-Key, the points at which it is to stop, what it
    did that is not yet written, and what all its events have: its thread, and the sale once that
    is known."""

    attempt: str
    stops: frozenset[str]
    kept: list[dict[str, Any]] = field(default_factory=list)
    of: dict[str, object] = field(default_factory=dict)


_purchase: ContextVar[TracedPurchase | None] = ContextVar("purchase", default=None)
_recorder: Recorder | None = None


def install() -> None:
    """Put the hooks in place that the settings ask for. Nothing happens outside a demo."""
    global _recorder
    if not settings.SHOP_DEMO:
        return
    pauses = {name: float(ms) / 1000 for name, ms in settings.SHOP_DEMO_PAUSES.items()}
    folder = settings.SHOP_DEMO_HISTORY
    _recorder = Recorder(Path(folder)) if folder else None

    def at_point(name: str, facts: Mapping[str, object]) -> None:
        steps.at_point(name, facts)
        if name in pauses:
            time.sleep(pauses[name])
        if _recorder is not None:
            _recorder.at_point(name, facts)

    points.install(at_point, stops=stops_at)


def handler() -> int:
    """The number of what handles a request: the thread, or in an event loop the task."""
    try:
        return id(asyncio.current_task())
    except RuntimeError:  # no event loop runs in this thread
        return threading.get_ident()


def stops_at(name: str) -> bool:
    """Whether the present purchase is paused or stopped at this point."""
    purchase = _purchase.get()
    return name in settings.SHOP_DEMO_PAUSES or (purchase is not None and name in purchase.stops)


class Recorder:
    """Records what purchases do, one JSON line an event, and stops those that asked for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = settings.SHOP_DEMO_NODE
        self.at_once = (folder / "at").is_dir()

    def at_point(self, name: str, facts: Mapping[str, object]) -> None:
        """Record what this thread's purchase found there, and stop it if it asked for that."""
        purchase = _purchase.get()
        if purchase is None:
            return
        if ":" not in name:  # those of the articles' locks are places to stop at, and no events
            self.record(purchase, name, facts)
        if name in purchase.stops:
            self.stop_at(purchase, name)

    def record(self, purchase: TracedPurchase, event: str, facts: Mapping[str, object]) -> None:
        """Record one event of a purchase."""
        if event == "begins":  # one that an event loop took in may go on in a thread
            purchase.of["thread"] = handler()
        if facts.get("sale") is not None:
            purchase.of["sale"] = facts["sale"]
        line: dict[str, Any] = {
            "t": time.monotonic_ns(),
            "by": "node",
            "node": self.node,
            "pid": os.getpid(),
            "attempt": purchase.attempt,
            "f": event,
            "type": "invoke" if event in BEGINS else "ok",
            **facts,
            **purchase.of,
        }
        if self.at_once:
            self.write([line])
        else:
            purchase.kept.append(line)

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Append events, all with one write: those of two threads are never mixed."""
        text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        path = self.folder / f"node-{self.node}-{os.getpid()}.jsonl"
        with path.open("ab", buffering=0) as file:
            if file.write(text) != len(text):
                raise OSError("half an event was written: make room on the disk and repeat the run")

    def stop_at(self, purchase: TracedPurchase, name: str) -> None:
        """Wait here until the file that lets this purchase go on appears."""
        mark = f"{purchase.attempt.replace('/', '+')}@{name}"
        go = self.folder / "go" / mark
        self.record(purchase, f"stops at {name}", {})
        (self.folder / "at" / mark).touch()
        deadline = time.monotonic() + LONGEST_STOP
        while not go.exists() and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY)
        self.record(purchase, f"leaves {name}", {})


class TraceMiddleware(MiddlewareMixin):
    """Knows the purchase of a request. In place only where a history is recorded."""

    def process_request(self, request: HttpRequest) -> None:
        key = request.headers.get("Idempotency-Key")
        if key is None:
            _purchase.set(None)
            return
        stops = frozenset(filter(None, request.headers.get("Demo-Stop", "").split(",")))
        _purchase.set(TracedPurchase(key, stops, of={"thread": handler()}))

    def process_view(self, request: HttpRequest, *_: object) -> None:
        points.point("arrives")

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        purchase = _purchase.get()
        _purchase.set(None)
        if purchase is not None and purchase.kept and _recorder is not None:
            _recorder.write(purchase.kept)
        return response
