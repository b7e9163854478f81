"""shop.web in this process, in front of a small application, for tests on raw sockets."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from waitress.adjustments import Adjustments

from shop.web.lanes import Lanes
from shop.web.loop import Loop
from shop.web.server import Server
from shop.web.worker import LARGEST_BODY, LARGEST_HEADERS

LARGE = 1_000_000


class Served:
    """A server with two threads for purchases and room for `connections`, in a thread.

    /buy and /slow wait for `open`; /large is a large page; everything else says what was sent.
    """

    def __init__(self, connections: int = 100) -> None:
        self.open = threading.Event()
        self.begun: list[str] = []
        self._over = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.loop = Loop()
        self.lanes = Lanes(2)
        self.server = Server(
            self._application,
            self.loop,
            _sock=self.listener,
            dispatcher=self.lanes,
            adj=Adjustments(
                connection_limit=connections,
                channel_timeout=75,
                max_request_header_size=LARGEST_HEADERS,
                max_request_body_size=LARGEST_BODY,
                ident="",
            ),
            sockinfo=(self.listener.family, self.listener.type, 0, self.listener.getsockname()),
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self._over = True
        self.server.pull_trigger()
        self._thread.join()
        for lane in (self.lanes.purchases, self.lanes.pages, self.lanes.health):
            lane.shutdown()
        for channel in list(self.loop.values()):
            channel.close()
        self.loop.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def send(self, sent: bytes) -> socket.socket:
        """A connection on which this was sent."""
        client = self.connect()
        client.sendall(sent)
        return client

    def ask(self, sent: bytes) -> bytes:
        """Everything that comes back until the server ends the connection."""
        with self.send(sent) as client:
            return read_all(client)

    def later(self, seconds: float, before: Callable[[], object] = lambda: None) -> None:
        """Have the server look at its connections as if so much time had passed.

        before  what happens before it looks, while it cannot read
        """
        looked = threading.Event()

        def look() -> None:
            before()
            self.server.maintenance(time.time() + seconds)
            self.loop.ask_all()
            looked.set()

        self.server.trigger.pull_trigger(look)
        assert looked.wait(10)

    def _run(self) -> None:
        while not self._over:
            self.loop.turn(1)

    def _application(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        self.begun.append(path)
        if path in ("/buy", "/slow"):
            self.open.wait(20)
        said = {
            "path": path,
            "length": environ.get("CONTENT_LENGTH", ""),
            "kept": len(environ["wsgi.input"].read()),
        }
        body = b"x" * LARGE if path == "/large" else json.dumps(said).encode()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]


def read_all(client: socket.socket) -> bytes:
    """What comes until the other side ends the connection. Raises OSError on a reset."""
    return b"".join(iter(lambda: client.recv(65536), b""))


def request(path: str, *more: str, method: str = "GET", close: bool = True) -> bytes:
    """The head of a request."""
    end = ["Connection: close"] if close else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *more, *end, "", ""]).encode()


def body_of(answer: bytes) -> dict[str, Any]:
    return dict(json.loads(answer.partition(b"\r\n\r\n")[2]))
