"""One connection: errors as JSON, an end that loses no answer, one answer in memory at a time."""

from __future__ import annotations

import socket
import time
from typing import Any

from waitress.channel import HTTPChannel
from waitress.task import ErrorTask, WSGITask

from shop.web.errors import RequestError, as_json
from shop.web.parser import Parser


class Answer(WSGITask):
    """The answer of the application."""

    def get_environment(self) -> dict[str, Any]:
        """As in WSGI; `shop.stopping` says whether the node is stopping."""
        environ: dict[str, Any] = super().get_environment()
        environ["shop.stopping"] = self.channel.server.stopping
        return environ

    def build_response_header(self) -> bytes:
        if self.channel.server.stopping:
            self.set_close_on_finish()  # the client must ask elsewhere next time
        return bytes(super().build_response_header())

    def write(self, data: bytes) -> None:
        """Send the headers with the first part of the body: each packet wakes the client."""
        if self.wrote_header:
            super().write(data)
            return
        self.channel.hold_back()
        try:
            super().write(data)
        finally:
            self.channel.send_held_back()


class ErrorAnswer(ErrorTask):
    """The answer to what is not HTTP, too large, too slow, or too late."""

    def execute(self) -> None:
        self.status, headers, body = as_json(self.request.error)
        self.response_headers.extend(headers)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class Channel(HTTPChannel):
    """A connection and what is known of its client.

    begun          when the first byte of an incomplete request came; None between requests
    idle_since     when it connected, or when its last answer was written
    has_asked      whether a whole request has ever come
    closing_since  when the node ended its side; None before
    """

    task_class = Answer
    error_task_class = ErrorAnswer
    parser_class = Parser

    request: Parser | None

    def __init__(self, server: Any, *args: Any, **kwargs: Any) -> None:
        self.begun: float | None = None
        self.idle_since = time.time()
        self.has_asked = False
        self.closing_since: float | None = None
        self._held_back: list[bytes] | None = None
        self._parked = False
        self._sending = False
        self._answering = False
        server.accepted += 1
        super().__init__(server, *args, **kwargs)

    def worth(self) -> tuple[bool, bool, float]:
        """The lower, the less is lost with this connection if it is closed now."""
        return self.closing_since is None, self.has_asked, self.idle_since

    def is_in_flight(self) -> bool:
        """Whether a thread answers a request of this connection, or will when it is free."""
        return bool(self.requests) and not self._parked

    @property
    def awaits_its_thread(self) -> bool:
        """Whether nothing changes here before the thread that answers begins to write."""
        return bool(self.requests) and not self._answering

    def is_silent(self) -> bool:
        """Whether nothing has come in that was not read yet: closing then would reset a request
        that was sent."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True
        return False

    # --- in the event loop ----------------------------------------------------------------------

    def readable(self) -> bool:
        return self.closing_since is not None or bool(super().readable())

    def writable(self) -> bool:
        # What a thread is sending at this moment needs no help.
        return self._parked or (not self._sending and bool(super().writable()))

    def handle_read(self) -> None:
        if self.closing_since is not None:
            self.recv(self.adj.recv_bytes)  # thrown away; at its end, recv() closes
            return
        super().handle_read()

    def received(self, data: bytes) -> bool:
        if self.begun is None:
            self.begun = time.time()
        if not self.requests:
            self._answering = False
        taken = bool(super().received(data))
        if self.request is None:
            self.begun = None
            self.has_asked = True
        return taken

    def handle_write(self) -> None:
        if self.close_when_flushed:
            self._flush_exception(self._flush_some)
            if self.will_close:
                self.handle_close()
            elif self.connected and not self.total_outbufs_len:
                self._end()
            return
        super().handle_write()
        if self._parked and not self.total_outbufs_len:
            self._parked = False
            self.server.add_task(self)

    def _end(self) -> None:
        """End our side of the connection, and read on until the client ends its own.

        Closing at once resets a connection on which something unread has come in, and a reset may
        reach the client before the answer does.
        """
        self.close_when_flushed = False
        self.closing_since = time.time()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.handle_close()

    def refuse(self, error: RequestError) -> None:
        """Answer what has come of an incomplete request with this error, and end the connection."""
        with self.requests_lock:
            request = self.request or Parser(self.adj)
            request.error, request.completed = error, True
            self.request, self.begun = None, None
            self.requests.append(request)
        self.server.add_task(self)

    def park(self) -> None:
        """Begin the next pipelined request only when this answer is on its way: a client that
        asks and asks and never reads has one answer in memory, and blocks no thread."""
        self._parked = True

    # --- in the thread that answers -------------------------------------------------------------

    def service(self) -> None:
        super().service()
        self._begin_to_answer()  # also one whose client is gone, and which wrote nothing
        self.idle_since = time.time()
        if self.begun is not None:  # the next one has begun to come in; its time counts from here
            self.begun = self.idle_since

    def hold_back(self) -> None:
        """Collect what is written until send_held_back()."""
        self._held_back = []

    def send_held_back(self) -> None:
        held, self._held_back = self._held_back, None
        if held:
            self.write_soon(b"".join(held))

    def _begin_to_answer(self) -> None:
        self._answering = True
        if (fd := self._fileno) is not None:
            self._map.ask_soon(fd)

    def write_soon(self, data: Any) -> int:
        if self._held_back is not None and isinstance(data, bytes):
            self._held_back.append(data)
            return len(data)
        self._begin_to_answer()
        self._sending = True
        try:
            return int(super().write_soon(data))
        finally:
            self._sending = False
            if self.total_outbufs_len:  # the rest is for the loop
                self.server.pull_trigger()
