"""How commands reach the server: on connections of the lock's own, each sent once.

redis-py 8 repeats a failed command ten times, and a failed connect as well. A release whose reply
was lost would be repeated and find the lock gone; a wait of one second would last until the last
retry. So the lock takes from the client where and how to connect, and leaves its retries, its
decoding and its pool alone. A waiter holds no connection, so there are never more of them than
threads that talk to the server at one moment.
"""

import copy
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from .protocol import (
    Call,
    WireError,
    eval_,
    evalsha,
    is_a,
    is_of_the_client,
    is_refusal_of_replica,
    packed,
)

#: Seconds that a silent server is waited for where the client says nothing.
DEFAULT_TIMEOUT_SECONDS = 5.0

#: What our connections do not take over from the client's ...
IGNORED_CLIENT_OPTIONS = {
    "event_dispatcher",
    "health_check_interval",
    "himport_registry",
    "maint_notifications_config",
    "maint_notifications_pool_handler",
    "oss_cluster_maint_notifications_handler",
    "parser_class",
    "retry_on_error",
    "retry_on_timeout",
    "socket_connect_timeout",
    "socket_timeout",
}
#: ... and what they have instead (RESP2, in which a subscription's messages are plain replies).
LOCK_OPTIONS = {"retry": None, "decode_responses": False, "protocol": 2}


class Address:
    """Where a client's commands go, as which user, with which TLS: its connections' options."""

    def __init__(self, pool: Any, **instead: Any) -> None:
        client_options = {**pool.connection_kwargs, **instead}
        self._class = pool.connection_class
        self._options: dict[str, Any] = {
            option: setting
            for option, setting in client_options.items()
            if option not in IGNORED_CLIENT_OPTIONS
        } | LOCK_OPTIONS
        if self._options.get("lib_name") == "redis-py":  # its default, of which redis-py 7 warns
            del self._options["lib_name"]
            self._options.pop("lib_version", None)
        self.timeout: float = client_options.get("socket_timeout") or DEFAULT_TIMEOUT_SECONDS

    def at(self, host: str, port: int) -> Self:
        """Return the address of another node with the same options."""
        there = copy.copy(self)
        there._options = self._options | {"host": host, "port": port}
        return there

    def connection(self, **more: Any) -> Any:
        """Return a connection with these options and `more`, not yet open."""
        return self._class(**self._options | more)


def has_moved(connection: Any) -> bool:
    """Whether it leads to a master that the Sentinels have replaced since it was opened.

    A master that is cut off from its Sentinels closes nothing, and goes on granting locks.
    """
    found = getattr(getattr(connection, "connection_pool", None), "master_address", None)
    return found is not None and found != (connection.host, connection.port)


class Connections:
    """The connections on which the threads of this process acquire and release."""

    def __init__(self, address: Address, *, most: int) -> None:
        self._address = address
        self._idle: deque[Any] = deque(maxlen=most)
        self.on_demoted: Callable[[], None] = lambda: None

    def call(self, command: Call, *, within: float | None, asking: bool = False) -> Any:
        """Run the script, by its SHA-1, or its text where the server has not got it.

        asking  whether a node of a cluster sent us here by ASK
        within  seconds that connecting, and then the answer, may take at most; the client's socket
                timeout if that is less, or if None is given

        Raises WireError, and passes on what is no error of the client: what a signal handler or a
        credential provider raised.
        """
        timeout = self._address.timeout if within is None else min(within, self._address.timeout)
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._address.connection()
        sent = reusable = False
        try:
            open_connection(connection, timeout)
            sent = True
            (reply,) = exchange(connection, [command], asking=asking)
            reusable = True
            if isinstance(reply, Exception):
                raise reply
            return reply
        except Exception as error:
            if is_refusal_of_replica(error):
                reusable = False
                self.demoted()
            if is_of_the_client(error):
                raise WireError(error, sent=sent) from error
            raise
        finally:
            if reusable:
                self._idle.append(connection)
            else:  # its next reply would be anybody's
                connection.disconnect()

    def demoted(self) -> None:
        """Close the connections to a server that became a replica, and call on_demoted."""
        self.disconnect()
        self.on_demoted()

    def disconnect(self) -> None:
        """Close what is idle. In a forked child this leaves the parent's connections alone."""
        with suppress(IndexError):
            while True:
                self._idle.pop().disconnect()


def open_connection(connection: Any, timeout: float) -> None:
    """Open it if it is not, or no longer, open; its commands may take `timeout` seconds each.

    Raises whatever the connection's class does.
    """
    if _is_stale(connection) or has_moved(connection):
        connection.disconnect()
        connection.socket_timeout = connection.socket_connect_timeout = timeout
        connection.connect()
    set_timeout(connection, timeout)


def set_timeout(connection: Any, timeout: float) -> None:
    """Each of its commands from now on may take so many seconds."""
    sock: Any = getattr(connection, "_sock", None)
    if hasattr(sock, "settimeout") and sock.gettimeout() != timeout:
        sock.settimeout(timeout)


def _is_stale(connection: Any) -> bool:
    """Whether it was never opened, or the server closed it while it was idle."""
    if getattr(connection, "_sock", None) is None:
        return True  # can_read() would connect, and open_connection() once more
    try:
        return bool(connection.can_read())
    except Exception:
        return True


def hang_up(connection: Any) -> None:
    """End a connection on which another thread is reading: that thread finds it closed."""
    sock = getattr(connection, "_sock", None)
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def ask(connection: Any, *command: bytes | str) -> Any:
    """Return the reply, or an error reply. Raises what the connection's class raises otherwise."""
    connection.send_packed_command([packed(*command)])
    return _reply(connection)


def ask_anew(address: Address, *commands: Sequence[bytes | str], within: float) -> list[Any]:
    """Return replies, or errors in their place, over a new connection to the address.

    Raises whatever the connection's class does when the server is not reached.
    """
    connection = address.connection()
    try:
        open_connection(connection, min(within, address.timeout))
        return [ask(connection, *command) for command in commands]
    finally:
        connection.disconnect()


def exchange(connection: Any, calls: Sequence[Call], *, asking: bool = False) -> list[Any]:
    """Run several scripts, all sent before the first reply is read.

    Each is sent by its SHA-1, and again by its text where the server does not know it.

    Args:
        connection: An open connection.
        calls: The scripts with their keys and arguments.
        asking: Whether to send ASKING before each.

    Returns:
        The replies, with the exception in the place of an error. An unreachable server raises
        whatever the connection's class raises.
    """
    replies = _exchange(connection, [evalsha(*call) for call in calls], asking)
    unknown = [place for place, reply in enumerate(replies) if is_a(reply, "NoScriptError")]
    if unknown:
        again = _exchange(connection, [eval_(*calls[place]) for place in unknown], asking)
        for place, reply in zip(unknown, again, strict=True):
            replies[place] = reply
    return replies


def _exchange(connection: Any, commands: Sequence[bytes], asking: bool) -> list[Any]:
    if asking:
        first = packed("ASKING")
        connection.send_packed_command([first + command for command in commands])
        return [_reply(connection) for _ in (0, 1) * len(commands)][1::2]
    connection.send_packed_command([b"".join(commands)])
    return [_reply(connection) for _ in commands]


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response(disable_decoding=True)
    except Exception as error:
        if not is_a(error, "ResponseError"):
            raise
        return error
