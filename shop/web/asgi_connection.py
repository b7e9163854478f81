"""One connection of the asgi node: gunicorn's, with bounds in time and errors as JSON."""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import Any

from gunicorn.asgi.protocol import ASGIProtocol

from shop.web.server import CLOSE_TIMEOUT, LINGER, REQUEST_TIMEOUT


class Connection(ASGIProtocol):
    """A connection and what is known of its client. Times are monotonic seconds.

    begun       when the first byte of an incomplete request came; None between requests
    idle_since  when it connected, or when its last answer was written
    unread      since when the client has not read what was sent; None while it reads
    ended       when the node closed it; None before
    """

    def __init__(self, worker: Any) -> None:
        super().__init__(worker)
        self.begun: float | None = None
        self.idle_since = time.monotonic()
        self.unread: float | None = None
        self.ended: float | None = None

    # --- called by the event loop ---------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.worker.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.worker.connections.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.begun is None and self.is_idle():
            self.begun = time.monotonic()
        if not self.worker.intake.call(lambda: self._parse(data)):
            self.transport.pause_reading()  # so that one part at most waits

    def _parse(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()
            super().data_received(data)

    def pause_writing(self) -> None:
        self.unread = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.unread = None
        super().resume_writing()

    def _is_websocket_upgrade(self, request: Any) -> bool:
        """The shop speaks none: such a request is answered as if it had not asked for one."""
        return False

    # --- bounds ---------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Whether no whole headers have come since the last answer."""
        return self._current_request is None

    def _on_message_complete(self) -> None:
        super()._on_message_complete()
        self.begun = None

    async def _serve_http_request(self, *given: Any) -> Any:
        try:
            return await super()._serve_http_request(*given)
        finally:
            self.idle_since = time.monotonic()

    def close_if_late(self, now: float, *, stopping_since: float | None) -> None:
        """Close it where it has taken too long."""
        started = stopping_since or 0.0
        if self.ended is not None:
            if now - self.ended > CLOSE_TIMEOUT:
                self.transport.abort()
        elif self.unread is not None:
            if now - self.unread > REQUEST_TIMEOUT:
                self.transport.abort()
        elif self.begun is not None:
            bound = LINGER if started else REQUEST_TIMEOUT
            if now - max(self.begun, started) > bound:
                self.refuse(408, f"a whole request must come in within {bound:g} s")
        elif self.is_idle():
            bound = LINGER if started else self._keepalive
            if now - max(self.idle_since, started) > bound:
                self._close_transport()

    def refuse(self, status: int, error: str) -> None:
        """Answer with this error, and close."""
        self._send_error_response(status, error)
        self._close_transport()

    def _close_transport(self) -> None:
        self.ended = self.ended or time.monotonic()
        super()._close_transport()

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        """As the shop's own answers."""
        phrase = HTTPStatus(status).phrase
        outcome = "unavailable" if status == HTTPStatus.SERVICE_UNAVAILABLE else "error"
        body = json.dumps({"outcome": outcome, "error": f"{phrase}: {message}"}).encode()
        retry = (("Retry-After", "1"),) if outcome == "unavailable" else ()
        headers = "".join(f"{name}: {value}\r\n" for name, value in (*extra_headers, *retry))
        head = (
            f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{headers}Connection: close\r\n\r\n"
        )
        self._safe_write(head.encode("latin-1") + body)
