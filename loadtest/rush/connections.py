"""The connections of one of Locust's users: kept above file 1,023, and taken when all is built.

geventhttpclient builds a request, with its headers and its cookies, and then takes a connection of
its pool. Between that and the first byte there is no other work.
"""

import select
import time
from collections.abc import Callable
from typing import Any

from gevent import monkey
from geventhttpclient.connectionpool import ConnectionPool

#: Python's own: gevent's lets others run, and answers would be read while buyers have yet to send.
poll = monkey.get_original("select", "poll")


def watch(client: Any, ready: Callable[[], object]) -> None:
    """From now on, call `ready` for each request of this FastHttpSession when only its bytes have
    to be sent. Locust counts a request without the time that this takes."""
    clients = client.client.clientpool
    find, send, waited = clients.get_client, client.request, 0.0

    def built() -> None:
        nonlocal waited
        began = time.monotonic()
        ready()
        waited += time.monotonic() - began

    def get_client(url: Any) -> Any:
        found = find(url)
        found._connection_pool.built = built
        return found

    def request(*arguments: Any, **options: Any) -> Any:
        nonlocal waited
        waited = 0.0
        response = send(*arguments, **options)
        if counted := vars(response).get("request_meta"):
            counted["response_time"] -= waited * 1000
            counted["start_time"] += waited
        return response

    clients.get_client, client.request = get_client, request


def get_socket(pool: Any, take: Callable[[Any], Any] = ConnectionPool.get_socket) -> Any:
    """Take a connection, once the pool's user may send."""
    getattr(pool, "built", lambda: None)()
    return take(pool)


def is_open(_: Any, socket: Any) -> bool:
    """Whether nothing has come on a connection that was kept, not even its end.

    geventhttpclient asks select(), which knows no file above 1,023: of more buyers in a process,
    those had to connect again in the rush.
    """
    if socket is None or socket.fileno() < 0:
        return False
    asked = poll()
    asked.register(socket.fileno(), select.POLLIN)
    return not asked.poll(0)


ConnectionPool.get_socket = get_socket  # type: ignore[method-assign,assignment]
ConnectionPool._is_socket_alive = is_open  # type: ignore[method-assign,assignment]
