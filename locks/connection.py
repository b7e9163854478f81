"""Connections that only the locks use, and on which each command is sent once.

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

from .sans_io.protocol import (
    Call,
    WireError,
    eval_,
    evalsha,
    is_a,
    is_of_the_client,
    is_refusal_of_replica,
    packed,
)

#: Time to wait for a silent server where the client has no socket_timeout.
DEFAULT_TIMEOUT_SECONDS = 5.0

#: The client's connection options that our connections do not take over ...
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
#: ... and the options that replace them. In RESP2 a subscription's messages are plain replies.
LOCK_OPTIONS = {"retry": None, "decode_responses": False, "protocol": 2}


class Address:
    """The options of a client's connections: the server, the user, TLS."""

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
        node_address = copy.copy(self)
        node_address._options = self._options | {"host": host, "port": port}
        return node_address

    def connection(self, **options: Any) -> Any:
        """Return a connection, not yet open. `options` add to those of the address."""
        return self._class(**self._options | options)


def has_moved(connection: Any) -> bool:
    """Return whether the connection's master was replaced by the Sentinels since it was opened.

    A master that is cut off from its Sentinels closes nothing, and goes on granting locks.
    """
    pool = getattr(connection, "connection_pool", None)
    master_address = getattr(pool, "master_address", None)
    return master_address is not None and master_address != (connection.host, connection.port)


class Connections:
    """The connections on which the threads of this process acquire and release."""

    def __init__(self, address: Address, *, max_idle: int) -> None:
        self._address = address
        self._idle: deque[Any] = deque(maxlen=max_idle)
        self.on_server_became_replica: Callable[[], None] = lambda: None

    def call(self, command: Call, *, within: float | None, asking: bool = False) -> Any:
        """Run a script by its SHA-1, or by its text if the server does not know it.

        Args:
            command: The script with its keys and arguments.
            within: Seconds that connecting, and then the answer, may take at most. The client's
                socket_timeout applies if it is shorter, or if this is None.
            asking: Whether a node of a cluster redirected the command here by ASK.

        Raises:
            WireError: The client raised an error. An exception of a signal handler or of a
                credential provider is passed on as it is.
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
                self.leave_replica()
            if is_of_the_client(error):
                raise WireError(error, sent=sent) from error
            raise
        finally:
            if reusable:
                self._idle.append(connection)
            else:  # the reply to this command may still arrive on it
                connection.disconnect()

    def leave_replica(self) -> None:
        """Close the connections to a server that became a replica, and notify the wake-ups."""
        self.disconnect()
        self.on_server_became_replica()

    def disconnect(self) -> None:
        """Close the idle connections. In a forked child the parent's connections stay open."""
        with suppress(IndexError):
            while True:
                self._idle.pop().disconnect()


def open_connection(connection: Any, timeout: float) -> None:
    """Open a connection unless it is open. Each of its commands may take `timeout` seconds.

    Raises whatever the connection's class does.
    """
    if _is_stale(connection) or has_moved(connection):
        connection.disconnect()
        connection.socket_timeout = connection.socket_connect_timeout = timeout
        connection.connect()
    set_timeout(connection, timeout)


def set_timeout(connection: Any, timeout: float) -> None:
    """Limit each later command on the connection to `timeout` seconds."""
    sock: Any = getattr(connection, "_sock", None)
    if hasattr(sock, "settimeout") and sock.gettimeout() != timeout:
        sock.settimeout(timeout)


def _is_stale(connection: Any) -> bool:
    """Return whether the connection was never opened, or the server closed it while it was idle."""
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
    unknown = [number for number, reply in enumerate(replies) if is_a(reply, "NoScriptError")]
    if unknown:
        again = _exchange(connection, [eval_(*calls[number]) for number in unknown], asking)
        for number, reply in zip(unknown, again, strict=True):
            replies[number] = reply
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
