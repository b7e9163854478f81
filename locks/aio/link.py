"""A connection that redis-py opens, and that is read without a task.

redis-py connects, because it knows the address, TLS, the user, the database and the Sentinels. Then
the transport calls data_received() with the bytes that arrive. No task reads them, for two reasons.
A task would cost another turn of the loop for each reply. And asyncio.run() would cancel the task
at its end, when other tasks still have to release their locks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from ..connection import Address, has_master_moved

#: The links that have a socket, or will have one soon. A forked child closes its copies of the
#: sockets: otherwise the parent's subscription would live on after the parent's death.
_links: WeakSet[Link] = WeakSet()


def _after_fork() -> None:
    """Close this process's copies of all links' sockets, in a forked child.

    Each copy is replaced by the null device, so its file descriptor stays valid.
    """
    null_device = os.open(os.devnull, os.O_RDWR)
    for link in list(_links):
        link.replace_socket(null_device)
    os.close(null_device)


os.register_at_fork(after_in_child=_after_fork)


class IncompleteReply(Exception):
    """The rest of the reply has not arrived yet."""


class Link(asyncio.Protocol):
    """A connection that opens itself. It writes commands and passes on the replies.

    Args:
        address: The address.
        on_open: Called once it is open.
        on_reply: Called with each reply; an error reply is an exception.
        on_end: Called once with an exception, when the link was closed or could not be opened.

    Attributes:
        is_open: Whether commands can be written.
    """

    def __init__(
        self,
        address: Address,
        *,
        on_open: Callable[[], None],
        on_reply: Callable[[Any], None],
        on_end: Callable[[BaseException], None],
    ) -> None:
        self.is_open = False
        self._on_open = on_open
        self._on_reply = on_reply
        self._on_end = on_end
        self._has_ended = False
        self._buffer = b""
        self._connection = address.make_connection(socket_timeout=None)
        _links.add(self)
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._connect(address.timeout), name="locks.connecting")
        self._task.add_done_callback(self._on_connected)

    def write(self, command: bytes) -> None:
        """Send a command. The link must be open."""
        self._connection._writer.write(command)

    def has_master_moved(self) -> bool:
        """Return whether the Sentinels have named another master since the link opened."""
        return self.is_open and has_master_moved(self._connection)

    def close(self, error: BaseException | None = None) -> None:
        """Close the link. on_end is called with `error`, or with a ConnectionError."""
        if not self._task.done():
            self._task.cancel()
        self._end(error or ConnectionError("the connection was closed"))

    async def aclose(self) -> None:
        """Close the link, and wait for the task that connects if it is still running.

        Otherwise nothing is awaited, because a coroutine that awaits while asyncio.run() ends the
        loop might never be resumed.
        """
        self.close()
        if not self._task.done():
            await asyncio.wait({self._task})

    def replace_socket(self, file_descriptor: int) -> None:
        """Close this process's copy of the socket, by putting another open file in its place.

        The connection of the parent process stays open.
        """
        writer = self._connection._writer
        if writer is not None:  # set as soon as the socket is open, before AUTH and SELECT
            with suppress(OSError):  # the socket has just been closed
                os.dup2(file_descriptor, writer.transport.get_extra_info("socket").fileno())

    async def _connect(self, timeout: float) -> None:
        """Open the connection within `timeout` seconds."""
        async with asyncio.timeout(timeout):
            await self._connection.connect()

    def _on_connected(self, task: asyncio.Task[None]) -> None:
        """Read from the connection from now on, or end the link if it was not connected."""
        if task.cancelled():
            self.close()
            return
        error = task.exception()
        if error is not None or self._has_ended:
            self.close(error)
            return
        self._connection._writer.transport.set_protocol(self)
        self.is_open = True
        self._on_open()

    def _end(self, error: BaseException) -> None:
        """Close the connection. Call on_end unless it was called before."""
        connection = self._connection
        self.is_open = False
        if connection._writer is not None:
            connection._writer.close()
            connection._writer = connection._reader = None
        if not self._has_ended:
            self._has_ended = True
            self._on_end(error)

    def data_received(self, data: bytes) -> None:
        """Call on_reply with each complete reply. If a signal handler raises, close the link."""
        try:
            self._read_replies(data)
        except BaseException:
            # Otherwise a later command could get the reply to an earlier one.
            self.close(ConnectionError("reading a reply was interrupted"))
            raise

    def _read_replies(self, data: bytes) -> None:
        """Call on_reply with each complete reply (RESP2); keep the rest for the next call."""
        self._buffer = self._buffer + data if self._buffer else data
        start = 0
        try:
            while start < len(self._buffer):
                reply, start = self._parse(start)
                self._on_reply(reply)
        except IncompleteReply:
            pass
        self._buffer = self._buffer[start:]

    def connection_lost(self, exc: Exception | None) -> None:
        """End the link, because the transport lost its connection."""
        self._end(exc or ConnectionError("the server closed the connection"))

    def _parse(self, start: int) -> tuple[Any, int]:
        """Return the reply that starts at this index of the buffer, and the index after it.

        Raises IncompleteReply if the rest has not arrived yet.
        """
        buffer = self._buffer
        end = buffer.find(b"\r\n", start)
        if end < 0:
            raise IncompleteReply
        kind = buffer[start : start + 1]
        line = buffer[start + 1 : end]
        next_start = end + 2
        if kind == b":":
            return int(line), next_start
        if kind == b"+":
            return line, next_start
        if kind == b"-":
            return self._connection._parser.parse_error(line.decode(errors="replace")), next_start
        size = int(line)
        if size < 0:
            return None, next_start
        if kind == b"$":
            if len(buffer) < next_start + size + 2:
                raise IncompleteReply
            return buffer[next_start : next_start + size], next_start + size + 2
        elements = []  # the kind is *, an array
        for _ in range(size):
            element, next_start = self._parse(next_start)
            elements.append(element)
        return elements, next_start
