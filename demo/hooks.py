"""The hooks of a demo: pauses, stops and a history of each purchase.

A purchase reports named points on its way, such as `after_read` (shop/sale/points.py).
SHOP_DEMO_PAUSES delays every purchase at the points that it names. If SHOP_DEMO_HISTORY names a
folder, each purchase with an Idempotency-Key is recorded there, and can be stopped: a purchase
whose request has the header `Demo-Stop: after_read` stops at that point. The shop then creates the
file at/<key>@after_read in the folder, and the purchase continues when someone creates the file
go/<key>@after_read. Files are used because Redis and PostgreSQL may be down or cut off during a
fault.

In a folder with at/, every event is written immediately, because the process may be killed right
after it. Without at/ there are no stops, and the events of a request are written at its end: a
write while the lock is held would let another thread run, and would slow the rush down.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from demo import steps
from shop.sale import points

#: Time after which a stopped purchase continues without the file go/...
LONGEST_STOP_SECONDS = 30.0
#: Time between two checks for the file that lets a purchase continue.
GO_POLL_SECONDS = 0.005
#: Events recorded as `invoke` (they may still fail); all others are recorded as `ok`.
INVOKE_EVENTS = {"begins", "acquire", "reserve", "before_commit", "release"}

_purchase: ContextVar[TracedPurchase | None] = ContextVar("purchase", default=None)


def install() -> None:
    """Install a probe that pauses, stops and records purchases.

    The shop calls the probe at each point of a purchase, such as `after_read`, with the facts that
    are known there, such as the stock that was read.
    """
    pauses_seconds = {
        name: float(milliseconds) / 1000 for name, milliseconds in settings.SHOP_DEMO_PAUSES.items()
    }

    def at_point(name: str, facts: Mapping[str, object]) -> None:
        steps.at_point(name, facts)
        if name in pauses_seconds:
            time.sleep(pauses_seconds[name])
        purchase = _purchase.get()
        if purchase is not None:
            purchase.at_point(name, facts)

    points.install_probe(at_point, may_stop=should_stop_at)


def get_task_or_thread_id() -> int:
    """Return the id of the current task or, outside an event loop, of the current thread."""
    try:
        return id(asyncio.current_task())
    except RuntimeError:  # no event loop runs in this thread
        return threading.get_ident()


def should_stop_at(name: str) -> bool:
    """Return whether the current purchase has to wait at the point `name`.

    Every purchase pauses at the points of SHOP_DEMO_PAUSES. A traced one also stops at those that
    its request names.
    """
    purchase = _purchase.get()
    is_stop = purchase is not None and name in purchase.stops
    return is_stop or name in settings.SHOP_DEMO_PAUSES


class TracedPurchase:
    """The request of a purchase with an Idempotency-Key, its stops and its recorded events.

    key                 the Idempotency-Key
    stops               the names of the points at which the purchase stops
    folder              the folder of the history
    writes_immediately  whether each event is written immediately, or all at the request's end
    unwritten_events    the events that are still to be written
    common_fields       fields of every event: `thread`, the id of the thread or task, and `sale`
                        once it is known
    """

    def __init__(self, key: str, stops: Sequence[str]) -> None:
        self.key = key
        self.folder = Path(settings.SHOP_DEMO_HISTORY)
        self.writes_immediately = (self.folder / "at").is_dir()
        self.stops: Sequence[str] = ()
        if self.writes_immediately:  # without the folder `at` there are no stops
            self.stops = stops
        self.unwritten_events: list[dict[str, Any]] = []
        self.common_fields: dict[str, object] = {"thread": get_task_or_thread_id()}

    def at_point(self, name: str, facts: Mapping[str, object]) -> None:
        """Record that the purchase has reached a point, and stop there if the request asks for it.

        name   the name of the point
        facts  what is known there, such as the stock that was read
        """
        if ":" not in name:  # a point with a colon is inside a flawed lock, and is not recorded
            self.record(name, facts)
        if name in self.stops:
            self.stop_at(name)

    def record(self, event: str, facts: Mapping[str, object]) -> None:
        """Write an event of this purchase, or keep it until the request ends.

        facts  further fields of the event; docs/history.md lists them
        """
        if event == "begins":
            # Since the event `arrives`, an event loop may have passed the purchase on to a thread.
            self.common_fields["thread"] = get_task_or_thread_id()
        if facts.get("sale") is not None:
            self.common_fields["sale"] = facts["sale"]
        fields = {
            "t": time.monotonic_ns(),
            "by": "node",
            "node": settings.SHOP_DEMO_NODE,
            "pid": os.getpid(),
            "attempt": self.key,
            "f": event,
            "type": "invoke" if event in INVOKE_EVENTS else "ok",
            **facts,
            **self.common_fields,
        }
        if self.writes_immediately:
            self.write([fields])
        else:
            self.unwritten_events.append(fields)

    def write(self, events: list[dict[str, Any]]) -> None:
        """Append events to the file of this process, with a single write.

        Several threads append to the same file; a single write keeps their events apart.
        """
        text = "".join(f"{json.dumps(event)}\n" for event in events).encode()
        path = self.folder / f"node-{settings.SHOP_DEMO_NODE}-{os.getpid()}.jsonl"
        with path.open("ab", buffering=0) as file:
            if file.write(text) != len(text):
                raise OSError(
                    f"{path} ends in the middle of an event: free disk space and repeat the run"
                )

    def stop_at(self, name: str) -> None:
        """Stop at a point until someone creates the file that lets this purchase continue.

        The stop ends after LONGEST_STOP_SECONDS even without that file.
        """
        file_name = f"{self.key.replace('/', '+')}@{name}"  # a file's name has no slash
        go_file = self.folder / "go" / file_name
        self.record(f"stops at {name}", {})
        (self.folder / "at" / file_name).touch()
        deadline = time.monotonic() + LONGEST_STOP_SECONDS
        while not go_file.exists() and time.monotonic() < deadline:
            time.sleep(GO_POLL_SECONDS)
        self.record(f"leaves {name}", {})


class TraceMiddleware(MiddlewareMixin):
    """Traces the purchase of a request. Installed only if a history is recorded."""

    def process_request(self, request: HttpRequest) -> None:
        """Begin the trace of a purchase if the request has an Idempotency-Key."""
        key = request.headers.get("Idempotency-Key")
        stops = request.headers.get("Demo-Stop", "").split(",")
        traced_purchase = None
        if key is not None:
            traced_purchase = TracedPurchase(key, stops)
        _purchase.set(traced_purchase)

    def process_view(self, request: HttpRequest, *_: object) -> None:
        """Report the point `arrives`: the node has the request, and the purchase begins next."""
        points.point.send("arrives")

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """End the trace, write the events that are not written yet, and return the response."""
        purchase = _purchase.get()
        _purchase.set(None)
        if purchase is not None and purchase.unwritten_events:
            purchase.write(purchase.unwritten_events)
        return response
