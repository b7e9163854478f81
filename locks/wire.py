"""How commands reach the server: each is sent once, whatever the client was told about retries.

redis-py 8 repeats a failed command ten times. A release whose reply was lost would be repeated and
find the lock gone, a wait of one second would last until the last retry. So the lock takes a
connection from the client's pool and sends for itself. Replies are bytes, whether or not the
client decodes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import redis
from redis.exceptions import NoScriptError, ResponseError

from locks.scripts import Script

Arg = bytes | str | int

#: What a connection of our own does not take over from the client's, and what it has instead.
#: RESP2, in which a subscription's messages are plain replies.
NOT_OURS = {
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
OURS = {"retry": None, "decode_responses": False, "protocol": 2}


def send(connection: Any, script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> Any:
    """Run the script on this connection, by name; with its text where the server has not got it.

    Raises redis.RedisError, after closing a connection whose next reply would be anybody's.
    """
    try:
        try:
            connection.send_command("EVALSHA", script.sha, len(keys), *keys, *args)
            return connection.read_response(disable_decoding=True)
        except NoScriptError:
            connection.send_command("EVAL", script.text, len(keys), *keys, *args)
            return connection.read_response(disable_decoding=True)
    except ResponseError:
        raise
    except BaseException:
        connection.disconnect()
        raise


def send_all(
    connection: Any, script: Script, calls: Sequence[tuple[Sequence[bytes], Sequence[Arg]]]
) -> list[Any]:
    """Run the script once for each (keys, args), all sent before the first reply is read.

    Returns replies, with the exception in the place of one that is an error. Raises
    redis.RedisError when the server was not reached.
    """
    by_name = [("EVALSHA", script.sha, len(keys), *keys, *args) for keys, args in calls]
    replies = _exchange(connection, by_name)
    if any(isinstance(reply, NoScriptError) for reply in replies):
        connection.send_command("SCRIPT LOAD", script.text)
        connection.read_response()
        replies = _exchange(connection, by_name)
    return replies


def _exchange(connection: Any, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
    connection.connect()
    connection.send_packed_command(connection.pack_commands(commands))
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response(disable_decoding=True))
        except ResponseError as error:
            replies.append(error)
    return replies


def call(client: redis.Redis, script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> Any:
    """Run the script on a connection of the client's pool. Raises redis.RedisError."""
    pool = client.connection_pool
    connection = pool.get_connection()
    try:
        return send(connection, script, keys, args)
    finally:
        pool.release(connection)


class Server:
    """Where a client's commands go. Clients of one process for one place share one Server."""

    def __init__(self, pool: Any) -> None:
        self._class = pool.connection_class
        kwargs = {k: v for k, v in pool.connection_kwargs.items() if k not in NOT_OURS}
        self._kwargs: dict[str, Any] = kwargs | OURS

    @property
    def address(self) -> Any:
        """What makes two clients' servers the same: connection class, host, port, database, ..."""
        plain = (str, int, float, bool)
        return self._class, frozenset((k, v) for k, v in self._kwargs.items() if type(v) in plain)

    def connection(self, timeout: float) -> Any:
        """A connection of our own, not yet connected: no retries, `timeout` in seconds."""
        return self._class(**self._kwargs, socket_timeout=timeout, socket_connect_timeout=timeout)


_servers: dict[Any, Server] = {}
_server_of_pool: WeakKeyDictionary[Any, Server] = WeakKeyDictionary()


def server_of(client: redis.Redis) -> Server:
    """The Server of this client; clients with the same address and database have the same one."""
    pool = client.connection_pool
    server = _server_of_pool.get(pool)
    if server is None:
        server = Server(pool)
        place = (server.address, getattr(pool, "service_name", None))
        server = _server_of_pool[pool] = _servers.setdefault(place, server)
    return server
