"""The hooks of a demo, which pause, stop and record purchases.

During a purchase the shop calls these hooks at named places in its code, the points, such as
`after_read` (shop/sale/points.py). The setting SHOP_DEMO_PAUSES lists points, and each purchase
pauses there. If SHOP_DEMO_HISTORY is the path of a folder, each purchase with an Idempotency-Key is
recorded there, and can be stopped: a purchase whose request has the header `Demo-Stop: after_read`
stops at that point. The shop then creates the file at/<key>@after_read in the folder. The purchase
continues when the load test creates the file go/<key>@after_read. Files are used because Redis and
PostgreSQL may be down or cut off during a fault of the load test.

If the folder has a subfolder at/, every event is written immediately, because the process may be
killed right after the event. Without at/ there are no stops, and the events of a request are
written when the request ends: a write while the lock is held would let another thread run, and
would slow the rush down.
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
#: Events with the type `invoke`: an operation begins, and may still fail. All others have the type
#: `ok`.
INVOKE_EVENTS = {"begins", "acquire", "reserve", "before_commit", "release"}

_purchase: ContextVar[TracedPurchase | None] = ContextVar("purchase", default=None)


def install_hooks() -> None:
    """Install the function that pauses, stops and records purchases.

    The shop calls the installed function at each point of a purchase. A point is a named place in
    the code, such as `after_read`.
    """
    pauses_seconds = {
        name: float(milliseconds) / 1000 for name, milliseconds in settings.SHOP_DEMO_PAUSES.items()
    }

    def handle_point(name: str, fields: Mapping[str, object]) -> None:
        steps.handle_point(name, fields)
        if name in pauses_seconds:
            time.sleep(pauses_seconds[name])
        purchase = _purchase.get()
        if purchase is not None:
            purchase.handle_point(name, fields)

    points.install_probe(handle_point, may_block=may_block_at)


def get_task_or_thread_id() -> int:
    """Return the id of the current task or, outside an event loop, of the current thread."""
    try:
        return id(asyncio.current_task())
    except RuntimeError:  # no event loop runs in this thread
        return threading.get_ident()


def may_block_at(name: str) -> bool:
    """Return whether the current purchase waits at the point `name` of its code.

    Every purchase pauses at the points of SHOP_DEMO_PAUSES. A purchase that is recorded also stops
    at the points in the header `Demo-Stop` of its request.
    """
    purchase = _purchase.get()
    is_stop = purchase is not None and name in purchase.stops
    return is_stop or name in settings.SHOP_DEMO_PAUSES


class TracedPurchase:
    """A purchase with an Idempotency-Key, which is recorded in a history and can be stopped.

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

    def handle_point(self, name: str, fields: Mapping[str, object]) -> None:
        """Record that the purchase has reached a point. Stop there if it is one of `stops`.

        name    the name of the point
        fields  what the purchase reports there, such as the stock that was read (`amount`)
        """
        if ":" not in name:  # a point with a colon is inside a flawed lock, and is not recorded
            self.record(name, fields)
        if name in self.stops:
            self.stop_at(name)

    def record(self, name: str, fields: Mapping[str, object]) -> None:
        """Write an event of this purchase, or keep the event until the request ends.

        name    the name of the event: that of the point, or `stops at ...` or `leaves ...`
        fields  fields of the event besides those that every event has; see docs/history.md
        """
        if name == "begins":
            # The event `arrives` may have been recorded in an event loop, which then passed the
            # purchase on to this thread.
            self.common_fields["thread"] = get_task_or_thread_id()
        if fields.get("sale") is not None:
            self.common_fields["sale"] = fields["sale"]
        event = {
            "t": time.monotonic_ns(),
            "by": "node",
            "node": settings.SHOP_DEMO_NODE,
            "pid": os.getpid(),
            "attempt": self.key,
            "f": name,
            "type": "invoke" if name in INVOKE_EVENTS else "ok",
            **fields,
            **self.common_fields,
        }
        if self.writes_immediately:
            self.append_to_file([event])
        else:
            self.unwritten_events.append(event)

    def append_to_file(self, events: list[dict[str, Any]]) -> None:
        """Append events to the history file of this process, with a single write.

        Several threads append to the same file. A single write keeps each event in one piece.
        """
        text = "".join(f"{json.dumps(event)}\n" for event in events).encode()
        path = self.folder / f"node-{settings.SHOP_DEMO_NODE}-{os.getpid()}.jsonl"
        with path.open("ab", buffering=0) as file:
            if file.write(text) != len(text):
                raise OSError(
                    f"{path} ends in the middle of an event: free disk space and repeat the load "
                    "test"
                )

    def stop_at(self, name: str) -> None:
        """Stop at a point until the file exists that lets this purchase continue.

        The load test creates that file. After LONGEST_STOP_SECONDS the purchase continues anyway.
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
    """Records each purchase with an Idempotency-Key. Installed only if a history is recorded."""

    def process_request(self, request: HttpRequest) -> None:
        """Begin to record the purchase, if the request has an Idempotency-Key."""
        key = request.headers.get("Idempotency-Key")
        stops = request.headers.get("Demo-Stop", "").split(",")
        traced_purchase = None
        if key is not None:
            traced_purchase = TracedPurchase(key, stops)
        _purchase.set(traced_purchase)

    def process_view(self, request: HttpRequest, *_: object) -> None:
        """Report that the purchase is at its first point, `arrives`: the node has the request."""
        points.point_reached.send("arrives")

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Stop recording, write the events that are not written yet, and return the response."""
        purchase = _purchase.get()
        _purchase.set(None)
        if purchase is not None and purchase.unwritten_events:
            purchase.append_to_file(purchase.unwritten_events)
        return response
