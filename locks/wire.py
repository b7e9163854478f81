"""How commands reach the server: on connections of the lock's own, each sent once.

redis-py 8 repeats a failed command ten times, and a failed connect as well. A release whose reply
was lost would be repeated and find the lock gone; a wait of one second would last until the last
retry. So the lock takes from the client where and how to connect, and leaves its retries, its
decoding and its pool alone. A waiter holds no connection, so there are never more of them than
threads that talk to the server at one moment.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import redis
from redis.exceptions import NoScriptError, ResponseError

from .scripts import Script

Arg = bytes | str | int
Call = tuple[Sequence[bytes], Sequence[Arg]]  # the KEYS and ARGV of a script

#: What our connections do not take over from the client's ...
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
#: ... what they have instead (RESP2, in which a subscription's messages are plain replies) ...
OURS = {"retry": None, "decode_responses": False, "protocol": 2}
#: ... and what makes two clients' connections go to the same place.
PLACE = ("host", "port", "path", "db", "username", "password", "socket_timeout")


class Server:
    """Where a client's commands go. Clients of one process for one place share one Server."""

    def __init__(self, pool: Any) -> None:
        self._class = pool.connection_class
        given = pool.connection_kwargs
        self._kwargs: dict[str, Any] = {k: v for k, v in given.items() if k not in NOT_OURS} | OURS
        self._timeout = given.get("socket_timeout", 5.0)
        self._idle: deque[Any] = deque(maxlen=pool.max_connections)

    def connection(self, timeout: float) -> Any:
        """A connection for a thread of ours, not yet connected; timeout in seconds."""
        return self._class(**self._kwargs, socket_timeout=timeout, socket_connect_timeout=timeout)

    def call(self, script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> Any:
        """Run the script, by its SHA-1, or its text where the server has not got it.

        Raises redis.RedisError; whether the script ran is then unknown.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self.connection(self._timeout)
        try:
            if has_moved(connection) or _is_stale(connection):
                connection.disconnect()
                connection.connect()
            try:
                connection.send_command("EVALSHA", script.sha, len(keys), *keys, *args)
                return connection.read_response(disable_decoding=True)
            except NoScriptError:
                connection.send_command("EVAL", script.text, len(keys), *keys, *args)
                return connection.read_response(disable_decoding=True)
        except ResponseError:
            raise
        except BaseException:
            connection.disconnect()  # its next reply would be anybody's
            raise
        finally:
            self._idle.append(connection)

    def after_fork(self) -> None:
        """In the child: leave the parent's connections alone."""
        for connection in self._idle:
            connection.disconnect()
        self._idle.clear()


def _is_stale(connection: Any) -> bool:
    """Whether it was never opened, or the server closed it while it was idle."""
    try:
        return bool(connection.can_read())
    except (redis.RedisError, OSError):
        return True


def has_moved(connection: Any) -> bool:
    """Whether it leads to a master that the Sentinels, asked since by another, have replaced.

    A master that is cut off from its Sentinels closes nothing, and goes on granting locks.
    """
    found = getattr(getattr(connection, "connection_pool", None), "master_address", None)
    return found is not None and found != (connection.host, connection.port)


def call_all(connection: Any, script: Script, calls: Sequence[Call]) -> list[Any]:
    """Run the script once for each of `calls`, all sent before the first reply is read.

    Returns replies, with the exception in the place of one that is an error. Raises
    redis.RedisError when the server was not reached.
    """
    by_sha = [("EVALSHA", script.sha, len(keys), *keys, *args) for keys, args in calls]
    if has_moved(connection):
        connection.disconnect()
    connection.connect()
    replies = _exchange(connection, by_sha)
    if any(isinstance(reply, NoScriptError) for reply in replies):
        connection.send_command("SCRIPT LOAD", script.text)
        connection.read_response()
        replies = _exchange(connection, by_sha)
    return replies


def _exchange(connection: Any, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
    connection.send_packed_command(connection.pack_commands(commands))
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response(disable_decoding=True))
        except ResponseError as error:
            replies.append(error)
    return replies


_servers: dict[Any, Server] = {}
_server_of_pool: WeakKeyDictionary[Any, Server] = WeakKeyDictionary()


def server_of(client: redis.Redis) -> Server:
    """The Server of this client; clients with equal address, database and timeout share one."""
    pool = client.connection_pool
    server = _server_of_pool.get(pool)
    if server is None:
        given = [pool.connection_kwargs.get(part) for part in PLACE]
        place = (pool.connection_class, _sentinels(pool), *given)
        server = _server_of_pool[pool] = _servers.setdefault(place, Server(pool))
    return server


def _sentinels(pool: Any) -> Any:
    """Whom a Sentinel client's pool asks, and for which master; None for any other pool."""
    if not hasattr(pool, "sentinel_manager"):
        return None
    asked = [client.connection_pool.connection_kwargs for client in pool.sentinel_manager.sentinels]
    return pool.service_name, pool.is_master, frozenset((a["host"], a["port"]) for a in asked)


def _after_fork() -> None:
    for server in _servers.values():
        server.after_fork()


os.register_at_fork(after_in_child=_after_fork)
