"""A script as a command, where commands go, and what an error for a reply means. No I/O.

Errors are distinguished by the names of their classes: redis-py and valkey-py have the same names.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any

from .scripts import Script

Arg = bytes | str | int
Call = tuple[Script, Sequence[bytes], Sequence[Arg]]  # a script with its KEYS and ARGV

#: Seconds that a silent server is waited for where the client says nothing.
TIMEOUT = 5.0

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
#: ... and what they have instead (RESP2, in which a subscription's messages are plain replies).
OURS = {"retry": None, "decode_responses": False, "protocol": 2}


class WireError(Exception):
    """No answer from the server, or an error for one. The cause is redis-py's exception.

    sent  whether the command was sent, and so may have been, or will be, executed
    """

    def __init__(self, cause: BaseException, *, sent: bool) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.sent = sent
        self.__cause__ = cause


def is_a(error: BaseException, name: str) -> bool:
    """Whether the error's class, or one of its bases, has this name."""
    return any(kind.__name__ == name for kind in type(error).__mro__)


def exceptions_of(client_or_connection: type) -> Any:
    """The module with the exceptions of such clients or connections: redis-py's, or valkey-py's."""
    packages = (kind.__module__.partition(".")[0] for kind in client_or_connection.__mro__)
    modules = (sys.modules.get(f"{package}.exceptions") for package in packages)
    return next(module for module in modules if hasattr(module, "NoScriptError"))


def is_of_the_client(error: BaseException) -> bool:
    """Whether redis-py or valkey-py raised it, or the socket below."""
    return is_a(error, "RedisError") or is_a(error, "ValkeyError") or isinstance(error, OSError)


def is_refusal_of_replica(error: BaseException) -> bool:
    """Whether a server refused because it is a replica: it was demoted, and keeps its clients."""
    return is_a(error, "ReadOnlyError") or (
        is_a(error, "ResponseError") and "READONLY" in str(error)
    )


class Address:
    """Where a client's commands go, as which user, with which TLS: its connections' options."""

    def __init__(self, pool: Any, **instead: Any) -> None:
        given = {**pool.connection_kwargs, **instead}
        self._class = pool.connection_class
        self.exceptions = exceptions_of(self._class)
        self._options: dict[str, Any] = {k: v for k, v in given.items() if k not in NOT_OURS} | OURS
        if self._options.get("lib_name") == "redis-py":  # its default, of which redis-py 7 warns
            del self._options["lib_name"]
            self._options.pop("lib_version", None)
        self.timeout: float = given.get("socket_timeout") or TIMEOUT

    def at(self, host: str, port: int) -> Address:
        """The same on another node."""
        there = copy.copy(self)
        there._options = self._options | {"host": host, "port": port}
        return there

    def connection(self, **more: Any) -> Any:
        """A connection with these options and `more`, not yet open."""
        return self._class(**self._options | more)


def has_moved(connection: Any) -> bool:
    """Whether it leads to a master that the Sentinels have replaced since it was opened.

    A master that is cut off from its Sentinels closes nothing, and goes on granting locks.
    """
    found = getattr(getattr(connection, "connection_pool", None), "master_address", None)
    return found is not None and found != (connection.host, connection.port)


def evalsha(script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> bytes:
    """The script as a command, by its SHA-1."""
    return packed("EVALSHA", script.sha, len(keys), *keys, *args)


def eval_(script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> bytes:
    """The script as a command, by its text, for a server that has not got it."""
    return packed("EVAL", script.text, len(keys), *keys, *args)


def packed(*parts: Arg) -> bytes:
    """A command as it is sent: an array of strings in RESP.

    By hand, since redis-py takes longer for it, and hiredis crashes when a signal handler raises
    while it packs an int.
    """
    strings = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n%b" % (
        len(strings),
        b"".join([b"$%d\r\n%b\r\n" % (len(each), each) for each in strings]),
    )
