"""A truncated answer counts as no answer."""

import socket
import threading

import pytest

from loadtest.stack.client import Shop, ShopUnreachable


@pytest.mark.parametrize("status", ["200 OK", "503 Service Unavailable"])
def test_answer_cut_off_in_its_body_is_no_answer(status: str) -> None:
    """A node that dies after the first bytes of its answer sends such an answer."""

    def send_first_bytes() -> None:
        client, _ = server.accept()
        with client:
            client.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 99\r\n\r\n{{".encode())
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=send_first_bytes).start()
        with pytest.raises(ShopUnreachable, match="no answer from"):
            Shop(f"http://127.0.0.1:{server.getsockname()[1]}").buy(
                product="apple", lock="none", buyer="b", key="k"
            )
