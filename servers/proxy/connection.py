"""One connection through the proxy: the client's socket, the server's, and the bytes between.

A rule (ProxyRule) makes the proxy lose one reply or one request, or notice one request. The list of
rules belongs to the proxy, because the request may arrive on any connection. A connection whose
request matches a rule removes the rule from the list, so that no second request matches the rule.
Until the reply arrives, the rule is the connection's pending rule. If the connection ends before
the reply, nothing was lost: the connection puts the rule back, and the next request may match it.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

#: Where a server listens: host and port, or the path of its Unix socket.
Address = tuple[str, int] | Path | str
#: Number of a client's first bytes that are kept for has_sent(). A replica's PSYNC is among them.
HANDSHAKE_BYTES = 4096
#: The most bytes that are passed on at once.
MAX_CHUNK_BYTES = 65536


class ProxyRule:
    """A rule on the next request that contains certain bytes.

    match  the bytes that the request contains
    after  bytes that the same connection must have sent before the request; empty for none
    loses  what the proxy drops: `reply`; `request`, which then never reaches the server; `nothing`,
           if the request is only noticed
    reply  the first chunk of the lost reply; empty until it is lost
    fired  whether the reply or the request was lost, or the request was noticed. It is set before
           the client's connection is closed, so that a test may read it after the client's error.

    `is_cancelled` is true after cancel().
    """

    def __init__(self, match: bytes, after: bytes = b"", *, loses: str = "reply") -> None:
        # The docstring of the class describes the arguments and the flags.
        if not match:
            raise ValueError("match is empty: give bytes of the request, such as b'COMMIT'")
        self.match = match
        self.after = after
        self.loses = loses
        self.reply = b""
        self.is_cancelled = False
        self.fired = False

    def cancel(self) -> None:
        """Match no further request. A pending rule still loses its reply."""
        self.is_cancelled = True

    def fire(self, reply: bytes) -> None:
        """Record that the rule has taken effect. `reply` is empty unless a reply was lost."""
        self.reply = reply
        self.fired = True


class RequestMatcher:
    """Looks for the request that a rule describes in the bytes of one connection."""

    def __init__(self, rule: ProxyRule) -> None:
        self._parts_to_find = [part for part in (rule.after, rule.match) if part]
        #: The last bytes of the previous chunk, in which the next part may begin.
        self._tail = b""

    def add_chunk(self, chunk: bytes) -> bool:
        """Search the next chunk, and return whether all parts were sent: `after`, then `match`.

        A part may begin in one chunk and end in the next.
        """
        unsearched = self._tail + chunk
        while self._parts_to_find:
            part = self._parts_to_find[0]
            start = unsearched.find(part)
            if start < 0:
                tail_length = min(len(part) - 1, len(unsearched))
                self._tail = unsearched[len(unsearched) - tail_length :]
                return False
            self._parts_to_find.pop(0)
            unsearched = unsearched[start + len(part) :]
        return True


@dataclass
class ProxyState:
    """The state of a proxy: its target, its mode, its rules and its connections.

    target               the address of the server
    server_speaks_first  whether to connect to the server before the client sends anything
    delay                seconds by which each chunk is delivered later, in each direction
    drops_everything     whether all bytes are dropped
    drops_replication    whether the bytes from a server to its replicas are dropped
    dropped_bytes        number of bytes that were dropped since the proxy was started
    rules                the rules that no request has matched yet
    connections          the open connections
    mode_changed         set at a change of the mode: delayed chunks are then passed on at once
    """

    target: Address
    server_speaks_first: bool = False
    delay: float = 0.0
    drops_everything: bool = False
    drops_replication: bool = False
    dropped_bytes: int = 0
    rules: list[ProxyRule] = field(default_factory=list)
    connections: set[Connection] = field(default_factory=set)
    mode_changed: asyncio.Event = field(default_factory=asyncio.Event)


class Closed(Exception):
    """One side has closed, or the proxy loses the client's request. Both sides must be closed."""


class Connection:
    """A client's socket and the socket to the server that belongs to it.

    The socket to the server is opened at the first byte that the client sends, or at once if the
    server speaks first.

    A close on one side is passed on to the other: PostgreSQL must see that a killed client is gone.

    A new connection adds itself to the connections of the proxy and starts its task. It removes
    itself when the task has ended.
    """

    def __init__(self, proxy_state: ProxyState, client: socket.socket) -> None:
        self.proxy_state = proxy_state
        self.client = _prepare_socket(client)
        self.server: socket.socket | None = None
        #: Whether bytes or a close were dropped, so that the next bytes may begin in mid-message.
        self.has_dropped_data = False
        #: The first bytes of the client. Once there are HANDSHAKE_BYTES, no more are added.
        self._first_client_bytes = b""
        self._matchers: dict[ProxyRule, RequestMatcher] = {}
        #: The rule whose request was passed on, and whose reply will be dropped.
        self._pending_rule: ProxyRule | None = None
        proxy_state.connections.add(self)
        self.task = asyncio.get_running_loop().create_task(self._run())
        self.task.add_done_callback(self._close)

    def has_sent(self, text: bytes) -> bool:
        """Return whether the first bytes of the client contain this text."""
        return text in self._first_client_bytes

    def is_dropping(self, side: socket.socket | None) -> bool:
        """Return whether bytes that come from this side, client or server, are dropped."""
        if self.proxy_state.drops_everything:
            return True
        # A client that has sent PSYNC is a replica.
        is_replication = side is self.server and self.has_sent(b"PSYNC")
        return self.proxy_state.drops_replication and is_replication

    # --- how bytes pass --------------------------------------------------------------------------

    async def _run(self) -> None:
        """Pass bytes on in both directions until one side closes or fails."""
        try:
            async with asyncio.TaskGroup() as tasks:
                if self.proxy_state.server_speaks_first:
                    await self._open_server(tasks)
                tasks.create_task(self._pass_requests(tasks))
        except* (Closed, OSError):
            pass

    async def _pass_requests(self, tasks: asyncio.TaskGroup) -> None:
        """Pass on the client's requests until the client closes, and then raise Closed.

        Closed is also raised if a request must be lost. It is not raised after a lost reply: the
        server's side stays open until the server closes it, so that the server carries the request
        out.
        """
        while request := await self._read_next(self.client):
            server = self.server or await self._open_server(tasks)
            if self._pending_rule is None:
                self._match_rules(request)
            await asyncio.get_running_loop().sock_sendall(server, request)
        if not self._has_dropped_reply():
            raise Closed

    async def _pass_replies(self, server: socket.socket) -> None:
        """Pass the server's replies on until the server closes, and then raise Closed.

        If a rule is pending, the next reply and all later replies are dropped.
        """
        while reply := await self._read_next(server):
            if self._pending_rule is not None and not self._pending_rule.fired:
                self._drop_reply(self._pending_rule, server, reply)
            if not self._has_dropped_reply():
                await asyncio.get_running_loop().sock_sendall(self.client, reply)
        raise Closed

    async def _open_server(self, tasks: asyncio.TaskGroup) -> socket.socket:
        """Connect to the server, start a task that passes its replies on, and return the socket."""
        server = await self._connect()
        tasks.create_task(self._pass_replies(server))
        return server

    async def _connect(self) -> socket.socket:
        """Connect `self.server` to the proxy's target, and return it. Raises OSError."""
        target = self.proxy_state.target
        loop = asyncio.get_running_loop()
        if isinstance(target, tuple):
            self.server = _prepare_socket(socket.socket(socket.AF_INET))
            await loop.sock_connect(self.server, target)
        else:
            self.server = _prepare_socket(socket.socket(socket.AF_UNIX))
            await loop.sock_connect(self.server, str(target))
        return self.server

    async def _read_next(self, side: socket.socket) -> bytes:
        """Return the next bytes from this side that are not dropped; b"" if it has closed."""
        while True:
            try:
                chunk = await asyncio.get_running_loop().sock_recv(side, MAX_CHUNK_BYTES)
            except OSError:
                chunk = b""
            if side is self.client and len(self._first_client_bytes) < HANDSHAKE_BYTES:
                self._first_client_bytes += chunk
            if self.proxy_state.delay:  # wait for the delay, or until the mode changes
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.proxy_state.delay):
                        await self.proxy_state.mode_changed.wait()
            if not self.is_dropping(side):
                return chunk
            self.has_dropped_data = True
            self.proxy_state.dropped_bytes += len(chunk)
            if not chunk:  # do not pass the close on: wait until a new mode cancels this task
                await asyncio.Event().wait()

    # --- losing a reply ---------------------------------------------------------------------------

    def _match_rules(self, request: bytes) -> None:
        """Apply the rules that this request matches. Raises Closed if the request must be lost."""
        for rule in list(self.proxy_state.rules):
            matcher = self._matchers.setdefault(rule, RequestMatcher(rule))
            if not rule.is_cancelled and matcher.add_chunk(request):
                self.proxy_state.rules.remove(rule)
                if rule.loses == "reply":
                    self._pending_rule = rule
                    return
                rule.fire(b"")  # a rule that loses nothing only records the request
                if rule.loses == "request":
                    raise Closed

    def _drop_reply(self, rule: ProxyRule, server: socket.socket, reply: bytes) -> None:
        """Drop a reply as the rule says: close the client's connection, and record the reply.

        No further request is sent to the server.
        """
        rule.fire(reply)
        with suppress(OSError):
            self.client.shutdown(socket.SHUT_RDWR)
        # With unread bytes close() would send a reset, and the server might not read the request.
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _has_dropped_reply(self) -> bool:
        return self._pending_rule is not None and self._pending_rule.fired

    # --- the end ----------------------------------------------------------------------------------

    def _close(self, task: asyncio.Task[None]) -> None:
        """Close both sockets when the task has ended, and remove the connection."""
        for side in (self.client, self.server):
            if side is not None:
                side.close()
        if self._pending_rule is not None and not self._pending_rule.fired:
            # The connection ended without a reply, so nothing was lost: let the rule match again.
            self.proxy_state.rules.append(self._pending_rule)
        self.proxy_state.connections.discard(self)


def _prepare_socket(side: socket.socket) -> socket.socket:
    """Make this socket non-blocking, without delays for small TCP packets. Return it."""
    side.setblocking(False)
    if side.family != socket.AF_UNIX:
        side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return side
