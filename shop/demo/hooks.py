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


_purchase: ContextVar[TracedPurchase | None] = ContextVar("purchase", default=None)


def install() -> None:
    """Put the hooks in place that the settings ask for. Nothing happens outside a demo."""
    if not settings.SHOP_DEMO:
        return
    pauses = {name: float(ms) / 1000 for name, ms in settings.SHOP_DEMO_PAUSES.items()}

    def at_point(name: str, facts: Mapping[str, object]) -> None:
        steps.at_point(name, facts)
        if name in pauses:
            time.sleep(pauses[name])
        purchase = _purchase.get()
        if purchase is not None:
            purchase.at_point(name, facts)

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


class TracedPurchase:
    """One request of a purchase, with its Idempotency-Key and the points at which it is to stop.
    Records what it does, one JSON line an event."""

    def __init__(self, attempt: str, stops: str) -> None:
        self.attempt = attempt
        self.stops = stops.split(",")
        self.folder = Path(settings.SHOP_DEMO_HISTORY)
        self.at_once = (self.folder / "at").is_dir()
        self.kept: list[dict[str, Any]] = []  # not yet written
        #: What all its events have: its thread, and the sale once that is known.
        self.of: dict[str, object] = {"thread": handler()}

    def at_point(self, name: str, facts: Mapping[str, object]) -> None:
        """Record what this purchase found there, and stop it if it asked for that."""
        if ":" not in name:  # those of the articles' locks are places to stop at, and no events
            self.record(name, facts)
        if name in self.stops:
            self.stop_at(name)

    def record(self, event: str, facts: Mapping[str, object]) -> None:
        """Record one event."""
        if event == "begins":  # one that an event loop took in may go on in a thread
            self.of["thread"] = handler()
        if facts.get("sale") is not None:
            self.of["sale"] = facts["sale"]
        line = {
            "t": time.monotonic_ns(),
            "by": "node",
            "node": settings.SHOP_DEMO_NODE,
            "pid": os.getpid(),
            "attempt": self.attempt,
            "f": event,
            "type": "invoke" if event in BEGINS else "ok",
            **facts,
            **self.of,
        }
        if self.at_once:
            self.write([line])
        else:
            self.kept.append(line)

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Append events, all with one write: those of two threads are never mixed."""
        text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        path = self.folder / f"node-{settings.SHOP_DEMO_NODE}-{os.getpid()}.jsonl"
        with path.open("ab", buffering=0) as file:
            if file.write(text) != len(text):
                raise OSError("half an event was written: make room on the disk and repeat the run")

    def stop_at(self, name: str) -> None:
        """Wait here until the file that lets this purchase go on appears."""
        mark = f"{self.attempt.replace('/', '+')}@{name}"
        go = self.folder / "go" / mark
        self.record(f"stops at {name}", {})
        (self.folder / "at" / mark).touch()
        deadline = time.monotonic() + LONGEST_STOP
        while not go.exists() and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY)
        self.record(f"leaves {name}", {})


class TraceMiddleware(MiddlewareMixin):
    """Knows the purchase of a request. In place only where a history is recorded."""

    def process_request(self, request: HttpRequest) -> None:
        key = request.headers.get("Idempotency-Key")
        stops = request.headers.get("Demo-Stop", "")
        _purchase.set(None if key is None else TracedPurchase(key, stops))

    def process_view(self, request: HttpRequest, *_: object) -> None:
        points.point("arrives")

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        purchase = _purchase.get()
        _purchase.set(None)
        if purchase is not None and purchase.kept:
            purchase.write(purchase.kept)
        return response
