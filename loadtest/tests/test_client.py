"""The shop's client raises ShopUnreachable for answers that are incomplete or not from the shop."""

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from loadtest.stack.client import Shop, ShopUnreachable


@pytest.mark.parametrize("status", ["200 OK", "503 Service Unavailable"])
def test_answer_cut_off_in_its_body_counts_as_no_answer(status: str) -> None:
    """The answer has a Content-Length of 99, but only one byte, as if its node had died."""

    def send_first_bytes() -> None:
        client, _ = server.accept()
        with client:
            client.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 99\r\n\r\n{{".encode())
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):  # read the request
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=send_first_bytes).start()
        with pytest.raises(ShopUnreachable, match="no answer from"):
            Shop(f"http://127.0.0.1:{server.getsockname()[1]}").buy(
                product="apple", lock="none", buyer="b", key="k"
            )


def list_strategies(shop: Shop) -> Any:
    return shop.strategies()


def send_purchase(shop: Shop) -> Any:
    return shop.buy(product="apple", lock="none", buyer="b", key="k")


@pytest.mark.parametrize(
    ("send_request", "body"),
    [
        (list_strategies, "[]"),
        (list_strategies, "5"),
        (list_strategies, '{"items": []}'),
        (send_purchase, "[]"),
        (send_purchase, "null"),
    ],
)
def test_answer_of_another_service_counts_as_no_answer(
    send_request: Callable[[Shop], Any], body: str
) -> None:
    """Another service listens at the shop's port, and sends JSON that the shop never sends."""

    class OtherService(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET

        def log_message(self, format: str, *arguments: Any) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), OtherService) as server:
        threading.Thread(target=server.handle_request).start()
        with pytest.raises(ShopUnreachable):
            send_request(Shop(f"http://127.0.0.1:{server.server_port}"))
