"""What the load test asks of a shop, asked of a server that keeps what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from loadtest.stack.client import Shop

#: What the server answers to each path.
PAGES = {
    "/sales/7/orders?after=0": {"orders": [{"order": 3}, {"order": 5}], "next": 5},
    "/sales/7/orders?after=5": {"orders": [{"order": 8}], "next": None},
}


class Server(ThreadingHTTPServer):
    """Answers PAGES, and keeps every path with its Authorization."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        body = json.dumps(PAGES[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_orders_of_a_sale_are_read_page_by_page_with_the_token(server: Server) -> None:
    """The first page alone would be a sale that lost orders, to the judge."""
    shop = Shop(f"http://127.0.0.1:{server.server_port}", token="t")
    assert shop.orders(7) == [{"order": 3}, {"order": 5}, {"order": 8}]
    assert server.asked == [(path, "Bearer t") for path in PAGES]
