"""A TCP proxy between a client and a server that can cut, hold back or lead elsewhere."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import suppress
from typing import Any


class Proxy:
    """Between a client and the server. Cuts what a test asks for; passes on the rest."""

    def __init__(self, port: int) -> None:
        self.target = port  # where the connections go that are opened from now on
        self.delay = 0.0  # seconds that each request is held back
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._cut_after: bytes | None = None
        self._cut_before = False
        self._silent = False
        self._links: list[dict[str, Any]] = []
        self._alive = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def cut_reply_to(self, text: bytes) -> None:
        """Deliver the next request that contains `text`, and cut the connection at its reply."""
        self._cut_after = text

    def freeze_subscriptions(self) -> None:
        """Deliver nothing more on the connections that are subscribed now, and leave them open."""
        for link in list(self._links):
            link["frozen"] = link["subscribed"]

    def silence(self) -> None:
        """Deliver nothing more, on no connection, and accept new ones."""
        self._silent = True

    def refuse_next(self) -> None:
        """Cut the connection at the next request, undelivered."""
        self._cut_before = True

    def cut(self) -> None:
        """Break every connection that is open now."""
        for link in list(self._links):
            _shut(link["client"])
            _shut(link["server"])

    def close(self) -> None:
        self._alive = False
        _shut(self._listener)
        self._thread.join(5)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ, None)
            while self._alive:
                for key, _ in selector.select():
                    if key.data is None:
                        self._accept(selector)
                    else:
                        self._pass(selector, key)
        for link in self._links:
            link["client"].close()
            link["server"].close()
        self._listener.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:  # nobody there
            client.close()
            return
        state = {"doomed": False, "subscribed": False, "frozen": False}
        link = {"client": client, "server": server, **state}
        self._links.append(link)
        selector.register(client, selectors.EVENT_READ, (server, link))
        selector.register(server, selectors.EVENT_READ, (client, link))

    def _pass(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        other, link = key.data
        try:
            data = key.fileobj.recv(65536)  # type: ignore[union-attr]
        except OSError:
            data = b""
        if data and (link["frozen"] or self._silent):
            return
        if key.fileobj is link["client"]:
            time.sleep(self.delay)
        link["subscribed"] |= b"SUBSCRIBE" in data
        if key.fileobj is link["server"] and link["doomed"]:
            data = b""
        elif self._cut_before and key.fileobj is link["client"]:
            data, self._cut_before = b"", False
        elif self._cut_after is not None and self._cut_after in data:
            link["doomed"], self._cut_after = True, None
        try:
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        for end in (link["client"], link["server"]):
            if end in (k.fileobj for k in selector.get_map().values()):
                selector.unregister(end)
            _shut(end)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
