"""The connections of one of Locust's users: kept above file 1,023, and taken when all is built.

geventhttpclient builds a request, with its headers and its cookies, and then takes a connection of
its pool. Between that and the first byte there is no other work.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

from gevent import monkey
from geventhttpclient.client import HTTPClient, HTTPClientPool

#: Python's own: gevent's lets others run, and answers would be read while buyers have yet to send.
poll = monkey.get_original("select", "poll")


def watch(client: Any, ready: Callable[[], object] = lambda: None) -> None:
    """From now on, call `ready` for each request of this FastHttpSession when only its bytes have
    to be sent. Before the session's first request."""
    agent = client.client
    agent.clientpool = Clients(ready, **agent.clientpool.client_args)


class Clients(HTTPClientPool):
    """geventhttpclient's clients of one user, one for each address."""

    def __init__(self, ready: Callable[[], object], **options: Any) -> None:
        super().__init__(**options)
        self.ready = ready

    def get_client(self, url: Any) -> HTTPClient:
        known = len(self.clients)
        client = super().get_client(url)
        if len(self.clients) > known:
            self._watch(client._connection_pool)
        return client

    def _watch(self, pool: Any) -> None:
        take = pool.get_socket

        def get_socket() -> Any:
            self.ready()
            return take()

        pool.get_socket = get_socket
        pool._is_socket_alive = is_open


def is_open(socket: Any) -> bool:
    """Whether nothing has come on a connection that was kept, not even its end.

    geventhttpclient asks select(), which knows no file above 1,023: of more buyers in a process,
    those had to connect again in the rush.
    """
    if socket.fileno() < 0:
        return False
    asked = poll()
    asked.register(socket.fileno(), select.POLLIN)
    return not asked.poll(0)
