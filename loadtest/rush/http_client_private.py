"""All uses of private names of geventhttpclient, the HTTP client of Locust's users.

A new version of geventhttpclient may rename them. Then install() raises MissingName. This module
must not import Locust, because importing Locust patches the whole process. locust/locust_private.py
imports this module.
"""

import select
import time
from collections.abc import Callable
from typing import Any

from gevent import monkey
from geventhttpclient.client import HTTPClient
from geventhttpclient.connectionpool import ConnectionPool
from geventhttpclient.useragent import UserAgent

#: Python's own poll(). gevent's poll() would let other greenlets run, which would read answers
#: before all buyers have sent their requests.
_make_poll_object = monkey.get_original("select", "poll")
_original_get_socket = ConnectionPool.get_socket


class MissingName(RuntimeError):
    """A library no longer has a private name on which the rush relies."""


def install() -> None:
    """Replace two methods of geventhttpclient's connection pool, for the whole process.

    They let call_before_sending() work, and let one process have more than 1,023 connections.
    Raises MissingName if geventhttpclient lacks a private name that this module uses.
    """
    require_names()
    ConnectionPool.get_socket = _get_socket_after_callback  # type: ignore[method-assign,assignment]
    ConnectionPool._is_socket_alive = _is_connection_open  # type: ignore[method-assign,assignment]


def require_names() -> None:
    """Raise MissingName unless geventhttpclient has every name that this module uses."""
    names = {
        "ConnectionPool.get_socket": hasattr(ConnectionPool, "get_socket"),
        "ConnectionPool._is_socket_alive": hasattr(ConnectionPool, "_is_socket_alive"),
        "HTTPClient._connection_pool": init_assigns_attribute(HTTPClient, "_connection_pool"),
        "UserAgent._urlopen": hasattr(UserAgent, "_urlopen"),
        "UserAgent.clientpool": init_assigns_attribute(UserAgent, "clientpool"),
    }
    raise_for_missing("geventhttpclient", names, used_in=__file__)


def init_assigns_attribute(owner: type, name: str) -> bool:
    """Return whether the code of a class's constructor contains this attribute's name."""
    constructor: Any = owner.__init__  # type: ignore[misc]
    return name in constructor.__code__.co_names


def raise_for_missing(library: str, names: dict[str, bool], *, used_in: str) -> None:
    """Raise MissingName if one of these names of a library does not exist.

    names    name -> whether it exists
    used_in  the file that uses the names, for the message
    """
    missing_names = [name for name, exists in names.items() if not exists]
    if missing_names:
        raise MissingName(
            f"this version of {library} has no {', '.join(missing_names)}: install the version in "
            f"requirements.txt, or adapt {used_in}"
        )


def call_before_sending(session: Any, callback: Callable[[], object]) -> None:
    """Call `callback` just before each request of this FastHttpSession is sent.

    geventhttpclient builds the request, with its headers and cookies, and then takes a connection
    from its pool. `callback` is called between these two steps, so that afterwards only the bytes
    have to be sent. If the request is sent with catch_response=True, the response time in Locust's
    statistics does not include the time of `callback`.
    """
    client_pool = session.client.clientpool
    original_get_client = client_pool.get_client
    original_request = session.request
    callback_seconds = 0.0

    def timed_callback() -> None:
        nonlocal callback_seconds
        started_at = time.monotonic()
        callback()
        callback_seconds += time.monotonic() - started_at

    def get_client(url: Any) -> Any:
        client = original_get_client(url)
        client._connection_pool.before_sending = timed_callback
        return client

    def request(*arguments: Any, **options: Any) -> Any:
        nonlocal callback_seconds
        callback_seconds = 0.0
        response = original_request(*arguments, **options)
        request_meta = vars(response).get("request_meta")  # Locust's times of this request
        if request_meta:
            request_meta["response_time"] -= callback_seconds * 1000
            request_meta["start_time"] += callback_seconds
        return response

    client_pool.get_client = get_client
    session.request = request


def check_each_host(session: Any, check: Callable[[str], object]) -> None:
    """Call `check` with the host of each request and each redirect of this FastHttpSession.

    An exception of `check` ends the request before anything is sent.
    """
    open_url = session.client._urlopen

    def checked_open_url(request: Any) -> Any:
        check(str(request.url_split.host).strip("[]"))
        return open_url(request)

    session.client._urlopen = checked_open_url


def is_counted(response: Any) -> bool:
    """Return whether Locust has counted a response; it does so as the `with` block ends."""
    return bool(response._entered)  # a private name of Locust's ResponseContextManager


def _get_socket_after_callback(pool: Any) -> Any:
    """Take a connection from a pool. First call the pool's callback of call_before_sending()."""
    before_sending = getattr(pool, "before_sending", None)
    if before_sending is not None:
        before_sending()
    return _original_get_socket(pool)


def _is_connection_open(_pool: Any, connection: Any) -> bool:
    """Return whether an idle connection can be used again.

    It cannot be used if it is closed. It also cannot if there is something to read from it, which
    usually means that the server has closed it.

    The original method uses select(), which cannot watch file descriptors above 1,023. In a process
    with more buyers, some would have to connect again during the rush.
    """
    if connection is None or connection.fileno() < 0:
        return False
    poll_object = _make_poll_object()
    poll_object.register(connection.fileno(), select.POLLIN)
    return not poll_object.poll(0)
