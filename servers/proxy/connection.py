"""One connection through the proxy: the client's socket, the server's, and the bytes between."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from servers.proxy.lost_reply import LostReply, Watcher

#: Where a server listens: host and port, or the path of its Unix socket.
Address = tuple[str, int] | Path | str
#: A replica sends PSYNC within this many bytes of its connection, or never.
HANDSHAKE = 4096


@dataclass
class Conditions:
    """What the proxy does with bytes, for all of its connections."""

    target: Address
    delay: float = 0.0  # seconds, for each chunk in each direction
    hole: bool = False  # drop everything
    replication_hole: bool = False  # drop what a server sends to its replicas
    refusing: bool = False  # accept no connection
    dropped: int = 0  # bytes that fell into a hole, ever
    delayed: int = 0  # bytes that were delayed, ever
    rules: list[LostReply] = field(default_factory=list)
    connections: set[Connection] = field(default_factory=set)


class Side(asyncio.Protocol):
    """One end of a connection, and the bytes from it that were not passed on yet."""

    other: Side

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport: asyncio.Transport | None = None
        self.queue: deque[tuple[float, bytes | None]] = deque()  # due at, bytes; None is a close
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.connection.opened(self)

    def data_received(self, data: bytes) -> None:
        self.connection.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.connection.closed(self)

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.resume_reading()

    def forget(self) -> None:
        self.queue.clear()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Connection:
    """A client's socket and the socket to the server that belongs to it.

    A close on one side is passed on to the other: PostgreSQL must see that a killed client is gone.
    """

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions
        self.client, self.server = Side(self), Side(self)
        self.client.other, self.server.other = self.server, self.client
        self.has_lost = False  # bytes or a close: what follows would be half a message
        self._replicates = False
        self._handshake = b""
        self._connecting: asyncio.Task[None] | None = None
        self._watchers: dict[LostReply, Watcher] = {}
        self._losing: LostReply | None = None  # the rule whose request was passed on
        self._drains = False  # pass nothing on; the server's side is still open

    # --- called by the two sides ------------------------------------------------------------------

    def opened(self, side: Side) -> None:
        if side is self.server:
            self._flush(self.client)
            return
        self.conditions.connections.add(self)
        if self.conditions.refusing:
            self.cut()
        elif not self.conditions.hole:
            self._connect()

    def received(self, side: Side, data: bytes) -> None:
        if side is self.client and len(self._handshake) < HANDSHAKE:
            self._handshake += data
            self._replicates = self.has_sent(b"PSYNC")
        if self._is_in_a_hole(side):
            self.has_lost = True
            self.conditions.dropped += len(data)
        elif not self._drains:
            self._pass(side, data)

    def closed(self, side: Side) -> None:
        if self._is_in_a_hole(side):
            self.has_lost = True
        elif not self._drains:
            self._pass(side, None)
        if self._is_over():
            self._end()

    def has_sent(self, text: bytes) -> bool:
        """Whether the client's first bytes, up to HANDSHAKE, contain this."""
        return text in self._handshake

    # --- called by the proxy ----------------------------------------------------------------------

    def cut(self) -> None:
        """Abort both sides. Bytes under way are lost."""
        self._drains = True  # nor is a close passed on any more
        for side in (self.client, self.server):
            side.forget()
            if side.transport is not None:
                side.transport.abort()
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._is_over():
            self._end()

    def apply_conditions(self) -> None:
        """Follow the proxy's conditions after they changed."""
        holes = [side for side in (self.client, self.server) if self._is_in_a_hole(side)]
        for side in holes:
            self.has_lost = self.has_lost or bool(side.queue)
            self.conditions.dropped += sum(len(data or b"") for _, data in side.queue)
            side.forget()
        if holes:
            return
        if self.has_lost:
            self.cut()  # or half a message would arrive
        elif self._connecting is None:
            self._connect()  # it was accepted while there was a hole
        elif not self.conditions.delay:
            for side in (self.client, self.server):
                side.queue = deque((0.0, data) for _, data in side.queue)
                self._flush(side)

    # --- how bytes pass --------------------------------------------------------------------------

    def _connect(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._connect_to_server())

    async def _connect_to_server(self) -> None:
        loop, target = asyncio.get_running_loop(), self.conditions.target
        try:
            if isinstance(target, tuple):
                await loop.create_connection(lambda: self.server, *target)
            else:
                await loop.create_unix_connection(lambda: self.server, str(target))
        except OSError:
            self._connecting = None
            self.cut()

    def _is_in_a_hole(self, side: Side) -> bool:
        """Whether bytes from this side are dropped."""
        if self.conditions.hole:
            return True
        return self.conditions.replication_hole and self._replicates and side is self.server

    def _pass(self, side: Side, data: bytes | None) -> None:
        """Deliver in order, after the delay if there is one. None is a close."""
        if self._losing is not None and side is self.server:
            self._lose(data)
        elif self.conditions.delay or side.queue or self._waits_for_server(side):
            if self.conditions.delay:
                self.conditions.delayed += len(data or b"")
            side.queue.append((asyncio.get_running_loop().time() + self.conditions.delay, data))
            self._flush(side)
        else:
            self._deliver(side, data)

    def _waits_for_server(self, side: Side) -> bool:
        return side is self.client and self._connecting is not None and not self._connecting.done()

    def _flush(self, side: Side) -> None:
        """Deliver what is due, and set a timer for the rest."""
        loop = asyncio.get_running_loop()
        if side.timer is not None:
            side.timer.cancel()
            side.timer = None
        if side.other.transport is None and self._waits_for_server(side):
            return
        while side.queue and side.queue[0][0] <= loop.time():
            self._deliver(side, side.queue.popleft()[1])
        if side.queue:
            side.timer = loop.call_at(side.queue[0][0], self._flush, side)

    def _deliver(self, side: Side, data: bytes | None) -> None:
        transport = side.other.transport
        if transport is None:
            return
        if data is None:
            transport.close()
            return
        if side is self.client and self.conditions.rules and self._losing is None:
            self._match_rules(data)
        transport.write(data)

    # --- losing a reply ---------------------------------------------------------------------------

    def _match_rules(self, data: bytes) -> None:
        for rule in list(self.conditions.rules):
            watcher = self._watchers.get(rule) or self._watchers.setdefault(rule, Watcher(rule))
            if rule.is_open and watcher.sees(data):
                rule.take()
                self.conditions.rules.remove(rule)
                if rule.is_of_request:
                    rule.fire(b"")
                    self.cut()
                else:
                    self._losing = rule
                return

    def _lose(self, reply: bytes | None) -> None:
        if reply is None:  # the server closed without an answer
            if self.client.transport is not None:
                self.client.transport.close()
            return
        assert self._losing is not None
        self._drains = True
        self._losing.fire(reply)
        self.client.forget()
        if self.client.transport is not None:
            self.client.transport.abort()
        # Not close(): with unread bytes that is a reset, and the server might not read the request.
        if self.server.transport is not None:
            with suppress(OSError):
                self.server.transport.write_eof()

    # --- the end ----------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        both_are_gone = self.client.transport is None and self.server.transport is None
        return both_are_gone and not self._waits_for_server(self.client)

    def _end(self) -> None:
        for side in (self.client, self.server):
            side.forget()
        if self._losing is not None and not self._losing.fired:
            self._losing.give_back()
            self.conditions.rules.append(self._losing)
            self._losing = None
        self.conditions.connections.discard(self)
