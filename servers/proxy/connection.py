"""One connection through the proxy: the client's socket, the server's, and the bytes between.

A rule (LostReply) makes the proxy lose one reply or one request, or notice one request. The list of
rules belongs to the proxy, because the request may arrive on any connection. A connection whose
request matches a rule removes the rule from the list, so that no second request matches it. While
the reply is awaited, the rule is the connection's pending rule. If the connection ends before the
reply, nothing was lost: the connection puts the rule back, and the next request may match it.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

#: Where a server listens: host and port, or the path of its Unix socket.
Address = tuple[str, int] | Path | str
#: A replica sends PSYNC within this many bytes of its connection, or never.
HANDSHAKE_BYTES = 4096
#: The most bytes that are passed on at once.
MAX_CHUNK_BYTES = 65536


class LostReply:
    """A rule: the proxy loses the reply to the next request that matches.

    match  bytes that the request contains
    after  bytes that the same connection must have sent before the request; empty for none
    loses  `reply`; `request`: the server never gets the request; `nothing`: the request is only
           noticed
    reply  the first bytes of the reply that were dropped; empty until then
    fired  whether the reply or the request was lost, or the request was noticed. It is set before
           the client's connection is closed, so that a test may read it after the client's error.

    `is_cancelled` is true after cancel().
    """

    def __init__(self, match: bytes, after: bytes = b"", *, loses: str = "reply") -> None:
        if not match:
            raise ValueError("match is empty: give bytes of the request, such as b'COMMIT'")
        self.match = match
        self.after = after
        self.loses = loses
        self.reply = b""
        self.is_cancelled = False
        self.fired = False

    def cancel(self) -> None:
        """Match no further request. The reply to a request that was passed on is still lost."""
        self.is_cancelled = True

    def fire(self, reply: bytes) -> None:
        """Record that the rule has taken effect, and the bytes of the reply that were dropped."""
        self.reply = reply
        self.fired = True


class RequestMatcher:
    """Looks for the request of one rule in the bytes of one connection, in chunks of any size."""

    def __init__(self, rule: LostReply) -> None:
        self._expected_parts = [part for part in (rule.after, rule.match) if part]
        self._tail = b""

    def is_complete_with(self, data: bytes) -> bool:
        """Return whether `after` and then `match` have been sent, with these bytes as the last.

        It has to be called with each chunk of the connection, in order.
        """
        text = self._tail + data
        while self._expected_parts:
            part = self._expected_parts[0]
            _, separator, rest = text.partition(part)
            if not separator:
                self._tail = text[max(0, len(text) - len(part) + 1) :]
                return False
            self._expected_parts.pop(0)
            text = rest
        return True


@dataclass
class ProxyState:
    """The state of a proxy: its target, its mode, its rules and its connections.

    target               the address of the server
    server_speaks_first  whether to connect to the server before the client sends anything
    delay                seconds by which each chunk is delivered later, in each direction
    drops_everything     whether all bytes are dropped
    drops_replication    whether the bytes from a server to its replicas are dropped
    dropped              number of bytes that were dropped since the proxy was started
    rules                the rules that no request has matched yet
    connections          the open connections
    changed              set when the mode changes: delayed chunks are then passed on at once
    """

    target: Address
    server_speaks_first: bool = False
    delay: float = 0.0
    drops_everything: bool = False
    drops_replication: bool = False
    dropped: int = 0
    rules: list[LostReply] = field(default_factory=list)
    connections: set[Connection] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Closed(Exception):
    """One side has closed, or its request is lost. The other side must be closed too."""


class Connection:
    """A client's socket and the socket to the server that belongs to it.

    The socket to the server is opened at the first byte that the client sends, or at once if the
    server speaks first.

    A close on one side is passed on to the other: PostgreSQL must see that a killed client is gone.
    """

    def __init__(self, proxy_state: ProxyState, client: socket.socket) -> None:
        self.proxy_state = proxy_state
        self.client = _make_nonblocking(client)
        self.server: socket.socket | None = None
        #: Set once bytes or a close were dropped: the rest of the stream begins in mid-message.
        self.has_dropped_data = False
        #: The first HANDSHAKE_BYTES of the client: a replica sends PSYNC in them.
        self._first_client_bytes = b""
        self._matchers: dict[LostReply, RequestMatcher] = {}
        #: The rule whose request was passed on, and whose reply will be dropped.
        self._pending_rule: LostReply | None = None
        proxy_state.connections.add(self)
        self.task = asyncio.get_running_loop().create_task(self._run())
        self.task.add_done_callback(self._end)

    def has_sent(self, text: bytes) -> bool:
        """Return whether the client's first HANDSHAKE_BYTES contain this text."""
        return text in self._first_client_bytes

    def is_dropping(self, side: socket.socket | None) -> bool:
        """Return whether bytes from this side are dropped."""
        is_replication = side is self.server and self.has_sent(b"PSYNC")
        return self.proxy_state.drops_everything or (
            self.proxy_state.drops_replication and is_replication
        )

    # --- how bytes pass --------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                if self.proxy_state.server_speaks_first:
                    await self._open_server(tasks)
                tasks.create_task(self._pass_requests(tasks))
        except* (Closed, OSError):
            pass

    async def _pass_requests(self, tasks: asyncio.TaskGroup) -> None:
        """Pass on the client's requests until it closes, and then end the connection.

        If the reply to a request was lost, the server's side stays open until the server closes it,
        so that the server carries the request out.
        """
        while request := await self._read_next(self.client):
            server = self.server or await self._open_server(tasks)
            if self._pending_rule is None:
                self._match_rules(request)
            await asyncio.get_running_loop().sock_sendall(server, request)
        if not self._has_dropped_reply():
            raise Closed

    async def _pass_replies(self, server: socket.socket) -> None:
        while reply := await self._read_next(server):
            if self._pending_rule is not None and not self._pending_rule.fired:
                self._drop_reply(self._pending_rule, server, reply)
            if not self._has_dropped_reply():
                await asyncio.get_running_loop().sock_sendall(self.client, reply)
        raise Closed

    async def _open_server(self, tasks: asyncio.TaskGroup) -> socket.socket:
        """Connect to the server and pass its replies on. Return the socket."""
        server = await self._connect()
        tasks.create_task(self._pass_replies(server))
        return server

    async def _connect(self) -> socket.socket:
        target = self.proxy_state.target
        loop = asyncio.get_running_loop()
        if isinstance(target, tuple):
            self.server = _make_nonblocking(socket.socket(socket.AF_INET))
            await loop.sock_connect(self.server, target)
        else:
            self.server = _make_nonblocking(socket.socket(socket.AF_UNIX))
            await loop.sock_connect(self.server, str(target))
        return self.server

    async def _read_next(self, side: socket.socket) -> bytes:
        """Return the next bytes of this side that may be passed on, in order. b"" is a close."""
        while True:
            try:
                data = await asyncio.get_running_loop().sock_recv(side, MAX_CHUNK_BYTES)
            except OSError:
                data = b""
            if side is self.client and len(self._first_client_bytes) < HANDSHAKE_BYTES:
                self._first_client_bytes += data
            if self.proxy_state.delay:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.proxy_state.delay):
                        await self.proxy_state.changed.wait()
            if not self.is_dropping(side):
                return data
            self.has_dropped_data = True
            self.proxy_state.dropped += len(data)
            if not data:
                await asyncio.Event().wait()  # a change of the mode cancels this task

    # --- losing a reply ---------------------------------------------------------------------------

    def _match_rules(self, request: bytes) -> None:
        """Apply the rules that this request matches. Raises Closed if the request must be lost."""
        for rule in list(self.proxy_state.rules):
            matcher = self._matchers.setdefault(rule, RequestMatcher(rule))
            if not rule.is_cancelled and matcher.is_complete_with(request):
                self.proxy_state.rules.remove(rule)
                if rule.loses == "reply":
                    self._pending_rule = rule
                    return
                rule.fire(b"")
                if rule.loses == "request":
                    raise Closed

    def _drop_reply(self, rule: LostReply, server: socket.socket, reply: bytes) -> None:
        rule.fire(reply)
        with suppress(OSError):
            self.client.shutdown(socket.SHUT_RDWR)
        # Not close(): with unread bytes that is a reset, and the server might not read the request.
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _has_dropped_reply(self) -> bool:
        return self._pending_rule is not None and self._pending_rule.fired

    # --- the end ----------------------------------------------------------------------------------

    def _end(self, task: asyncio.Task[None]) -> None:
        for side in (self.client, self.server):
            if side is not None:
                side.close()
        if self._pending_rule is not None and not self._pending_rule.fired:
            # The connection ended without a reply, so nothing was lost: let the rule match again.
            self.proxy_state.rules.append(self._pending_rule)
        self.proxy_state.connections.discard(self)


def _make_nonblocking(side: socket.socket) -> socket.socket:
    """Return the socket, which an event loop can use from now on."""
    side.setblocking(False)
    if side.family != socket.AF_UNIX:
        side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return side
