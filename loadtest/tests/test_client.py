"""An answer that ends in its middle is no answer."""

import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from loadtest.stack.client import Shop, ShopUnreachable


class CutOff(socketserver.StreamRequestHandler):
    """A node that dies after the first bytes of the body."""

    status = ""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        head = f"HTTP/1.1 {self.status}\r\nContent-Length: 99\r\n\r\n{{"
        self.wfile.write(head.encode())


@pytest.fixture
def url(status: str) -> Iterator[str]:
    handler: Any = type("CutOff", (CutOff,), {"status": status})
    with socketserver.TCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("status", ["200 OK", "503 Service Unavailable"])
def test_an_answer_cut_off_in_its_body_leaves_open_what_happened(url: str) -> None:
    with pytest.raises(ShopUnreachable, match="no answer from"):
        Shop(url).buy(product="apple", lock="none", buyer="b", key="k")
