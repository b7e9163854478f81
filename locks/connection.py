"""Connections that only the locks use, and on which each command is sent once.

redis-py 8 repeats a failed command ten times, and a failed connect as well. If the reply to a
release was lost, the repeated release would find the lock free, as if the lease had been lost. A
wait of one second would last until the last retry. So the locks use the client's address and
options, but not its retries, its decoding or its pool. A waiter holds no connection. So the number
of connections is at most the number of threads that sent commands at the same time.
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
    has_class_named,
    is_client_error,
    is_refusal_of_replica,
    pack_command,
    pack_eval,
    pack_evalsha,
)

#: Time to wait for a silent server if the client has no socket_timeout.
DEFAULT_TIMEOUT_SECONDS = 5.0

#: The options of the client's connections that the locks' connections do not have: retries and the
#: features of redis-py's own pool. open_connection() sets the timeouts instead.
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
#: The options of the locks' connections that override the client's. The protocol is RESP2, in which
#: a subscription's messages are plain replies.
LOCK_OPTIONS = {"retry": None, "decode_responses": False, "protocol": 2}


class Address:
    """The options of a client's connections: the server, the user, TLS.

    Args:
        pool: The client's connection pool.
        **overrides: Options that replace those of the pool.

    Attributes:
        timeout: Seconds to wait at most for a silent server.
    """

    def __init__(self, pool: Any, **overrides: Any) -> None:
        client_options = {**pool.connection_kwargs, **overrides}
        self._connection_class = pool.connection_class
        self._options: dict[str, Any] = {
            option: setting
            for option, setting in client_options.items()
            if option not in IGNORED_CLIENT_OPTIONS
        } | LOCK_OPTIONS
        # redis-py 7 warns about these options, even if "redis-py" is its default and not a choice.
        if self._options.get("lib_name") == "redis-py":
            del self._options["lib_name"]
            self._options.pop("lib_version", None)
        self.timeout: float = client_options.get("socket_timeout") or DEFAULT_TIMEOUT_SECONDS

    def make_node_address(self, host: str, port: int) -> Self:
        """Return a copy of this address with another host and port, for a node of the cluster."""
        node_address = copy.copy(self)
        node_address._options = self._options | {"host": host, "port": port}
        return node_address

    def make_connection(self, **options: Any) -> Any:
        """Return a new connection, which is not open yet. `options` override the address's."""
        return self._connection_class(**self._options | options)


def has_master_moved(connection: Any) -> bool:
    """Return whether the Sentinels have replaced the connection's master since it was opened.

    No Sentinel is asked: the client's pool remembers their last answer. Without this check, a
    master that is cut off from its Sentinels would keep its connections and go on granting locks.
    """
    pool = getattr(connection, "connection_pool", None)
    master_address = getattr(pool, "master_address", None)
    return master_address is not None and master_address != (connection.host, connection.port)


class Connections:
    """The connections on which the threads of this process acquire and release.

    Attributes:
        on_server_became_replica: Called after leave_replica() closed the idle connections.
    """

    def __init__(self, address: Address, *, max_idle: int) -> None:
        self._address = address
        self._idle: deque[Any] = deque(maxlen=max_idle)
        self.on_server_became_replica: Callable[[], None] = lambda: None

    def call(self, command: Call, *, timeout: float | None, asking: bool = False) -> Any:
        """Run a script by its SHA-1, or by its text if the server does not know it.

        Args:
            command: The script with its keys and arguments.
            timeout: Maximum number of seconds for connecting, and separately for the reply. The
                client's socket_timeout applies if it is shorter, or if this is None.
            asking: Whether another node of the cluster redirected the command to this node by ASK.

        Returns:
            The reply.

        Raises:
            WireError: redis-py, valkey-py or the socket raised an error. An exception that a signal
                handler or a credential provider raised is passed on as it is.
        """
        seconds = self._address.timeout if timeout is None else min(timeout, self._address.timeout)
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._address.make_connection()
        may_have_sent = False
        reusable = False
        try:
            open_connection(connection, seconds)
            may_have_sent = True
            (reply,) = run_scripts(connection, [command], asking=asking)
            reusable = True
            if isinstance(reply, Exception):
                raise reply
            return reply
        except Exception as error:
            if is_refusal_of_replica(error):  # the server was demoted
                reusable = False
                self.leave_replica()
            if is_client_error(error):
                raise WireError(error, sent=may_have_sent) from error
            raise
        finally:
            if reusable:
                self._idle.append(connection)
            else:
                # A late reply could be taken for the reply to the connection's next command.
                connection.disconnect()

    def leave_replica(self) -> None:
        """Close the idle connections to a server that became a replica, and notify the wake-ups."""
        self.disconnect()
        self.on_server_became_replica()

    def disconnect(self) -> None:
        """Close the idle connections. In a forked child, the parent's connections stay open."""
        with suppress(IndexError):
            while True:
                self._idle.pop().disconnect()


def open_connection(connection: Any, timeout: float) -> None:
    """Open a connection if needed, and limit each command on it to `timeout` seconds.

    A connection is reopened if the server closed it, or if the Sentinels have named another master.
    Raises the connection error of the client library, for example redis.ConnectionError.
    """
    if _is_stale(connection) or has_master_moved(connection):
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
        return True  # do not call can_read(), which would connect
    try:
        return bool(connection.can_read())
    except Exception:
        return True


def hang_up(connection: Any) -> None:
    """End a connection while another thread reads from it. That thread's read fails."""
    sock = getattr(connection, "_sock", None)
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def run_command(connection: Any, *command: bytes | str) -> Any:
    """Send a command and return its reply, or an error reply as an exception.

    Raises the client library's exception, for example redis.TimeoutError, if no reply comes.
    """
    connection.send_packed_command([pack_command(*command)])
    return _read_reply(connection)


def run_on_new_connection(
    address: Address, *commands: Sequence[bytes | str], timeout: float
) -> list[Any]:
    """Send commands over a new connection to the address, and return their replies.

    An error reply is returned as an exception. Raises the client library's exception, for example
    redis.ConnectionError, if the server cannot be reached.
    """
    connection = address.make_connection()
    try:
        open_connection(connection, min(timeout, address.timeout))
        return [run_command(connection, *command) for command in commands]
    finally:
        connection.disconnect()


def run_scripts(connection: Any, calls: Sequence[Call], *, asking: bool = False) -> list[Any]:
    """Run several scripts. All are sent before the first reply is read.

    Each script is sent as its SHA-1. If the server does not know a script, its text is sent.

    Args:
        connection: An open connection.
        calls: The scripts with their keys and arguments.
        asking: Whether to send ASKING before each script.

    Returns:
        The replies, with an exception in place of each error reply.

    Raises:
        Exception: The client library's exception, for example redis.ConnectionError, if the server
            cannot be reached.
    """
    replies = _run_packed(connection, [pack_evalsha(*call) for call in calls], asking)
    unknown_scripts = [
        index for index, reply in enumerate(replies) if has_class_named(reply, "NoScriptError")
    ]
    if unknown_scripts:
        commands = [pack_eval(*calls[index]) for index in unknown_scripts]
        eval_replies = _run_packed(connection, commands, asking)
        for index, reply in zip(unknown_scripts, eval_replies, strict=True):
            replies[index] = reply
    return replies


def _run_packed(connection: Any, commands: Sequence[bytes], asking: bool) -> list[Any]:
    """Send packed commands and return their replies. `asking`: send ASKING before each."""
    if asking:
        asking_command = pack_command("ASKING")
        connection.send_packed_command([asking_command + command for command in commands])
        replies = [_read_reply(connection) for _ in range(2 * len(commands))]
        return replies[1::2]  # every other reply, without those to ASKING
    connection.send_packed_command([b"".join(commands)])
    return [_read_reply(connection) for _ in commands]


def _read_reply(connection: Any) -> Any:
    """Return the next reply. An error reply is returned as an exception."""
    try:
        return connection.read_response(disable_decoding=True)
    except Exception as error:
        if not has_class_named(error, "ResponseError"):
            raise
        return error
