"""One request as it comes in: what of it is kept, and what is too much."""

from __future__ import annotations

from typing import Any

from waitress.buffers import OverflowableBuffer
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.utilities import BadRequest

#: Bytes of a body that are kept. More is read and thrown away: Django refuses it by its length
#: (DATA_UPLOAD_MAX_MEMORY_SIZE is less), and a client that is cut off while it sends would get a
#: broken pipe and not the answer.
KEPT_BODY = 64 * 1024
#: Bytes of one line between the chunks of a body. waitress puts no bound to it.
LARGEST_CHUNK_LINE = 4 * 1024


class KeptBody(OverflowableBuffer):
    """The beginning of a body. Its length is that of the whole."""

    def __init__(self, overflow: int) -> None:
        super().__init__(overflow)
        self.received = 0

    def append(self, s: bytes) -> None:
        room = KEPT_BODY - self.received
        self.received += len(s)
        if room > 0:
            super().append(s[:room])

    def __len__(self) -> int:
        return self.received


class Parser(HTTPRequestParser):
    """waitress's parser, with a bound on what a body takes in memory."""

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            # A server in front that went by the length would take the rest for another request.
            raise ParsingError("Content-Length with Transfer-Encoding")
        if self.body_rcv is not None:
            self.body_rcv.buf = KeptBody(self.adj.inbuf_overflow)

    def received(self, data: bytes) -> int:
        consumed = int(super().received(data))
        body: Any = self.body_rcv
        if self.chunked and len(body.control_line) + len(body.trailer) > LARGEST_CHUNK_LINE:
            self.error = BadRequest("a line between chunks is too long")
            self.completed = True
        return consumed
