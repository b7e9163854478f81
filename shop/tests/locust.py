"""A Locust that runs nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs


class Locust:
    """Answers as Locust does, and remembers what it was asked to start and to stop."""

    def __init__(self) -> None:
        self.state, self.number = "ready", 0
        #: The rush that is on, and the last one, as GET /runs/state has them.
        self.rush: dict[str, Any] | None = None
        self.last: dict[str, Any] | None = None
        self.stops = 0
        self.runs: list[dict[str, Any]] = []
        self.started: list[dict[str, str]] = []
        self.bearers: set[str | None] = set()
        self.refuses: tuple[int, str] | None = None
        #: Seconds until it answers that a rush begins.
        self.begins_after = 0.0
        locust = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = {"state": locust.state, "number": locust.number}
                answer |= {"rush": locust.rush, "last": locust.last}
                self.answer({"runs": locust.runs} if self.path == "/runs" else answer)

            def do_POST(self) -> None:
                if self.path == "/stop":
                    locust.stops, locust.state = locust.stops + 1, "stopped"
                    self.answer({"success": True})
                    return
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                if locust.refuses is not None:
                    status, message = locust.refuses
                    self.answer({"success": False, "message": message}, status)
                    return
                locust.started.append({name: value for name, (value,) in form.items()})
                time.sleep(locust.begins_after)
                self.answer({"success": True})

            def answer(self, body: dict[str, Any], status: int = 200) -> None:
                locust.bearers.add(self.headers["Authorization"])
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))


@contextmanager
def listening() -> Iterator[Locust]:
    """One for as long as the block lasts."""
    there = Locust()
    there.thread.start()
    try:
        yield there
    finally:
        there.server.shutdown()
        there.thread.join()
        there.server.server_close()
