"""A proxy in front of Redis, a database or ZooKeeper that disturbs their connections.

It can delay or drop the bytes, and cut the connections. It runs one asyncio loop in a separate
thread. Its methods may be called from any other thread, and have taken effect when they return. A
proxy between a node of the shop and a server can cut the node off from the server. A proxy between
a master and its replica can stop the replication.

    with Proxy(("127.0.0.1", valkey.port)) as proxy:
        node = ShopNode(..., environment={"REDIS_URL": f"redis://{proxy.address}"})
        rule = proxy.lose_reply(b"lock:product:1")
        ...
        assert rule.fired

The proxy has no half-closed connections: a side that has ended its output counts as closed.
"""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from servers.proxy.connection import Address, Connection, ProxyRule, ProxyState

__all__ = ["Address", "Proxy", "ProxyRule"]

#: The port in the name of PostgreSQL's socket.
POSTGRES_PORT = 5432
#: The file that a PostgreSQL client looks for in a socket folder.
SOCKET_NAME = f".s.PGSQL.{POSTGRES_PORT}"
#: Number of connections that may wait to be accepted. The buyers of a rush connect at once.
BACKLOG_CONNECTIONS = 1024
#: Time limit for a call of a method, which the proxy's thread executes.
CALL_TIMEOUT_SECONDS = 10.0


class Proxy:
    """Passes everything on between its clients and `target`, until a method changes that.

    target  (host, port) of the server, or the path of its Unix socket
    folder  listen on a Unix socket in it, as PostgreSQL does; None: on a free port of 127.0.0.1
    server_speaks_first  whether the server greets a new client, as MySQL does. Other servers wait
                         for the client's first request

    pass_on, delay, black_hole, refuse and black_hole_replication set the mode, and each replaces
    the previous mode. The other methods work in every mode.
    """

    def __init__(
        self, target: Address, *, folder: Path | None = None, server_speaks_first: bool = False
    ) -> None:
        self.folder = folder
        self.port = 0
        self._state = ProxyState(target, server_speaks_first)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        #: Reserves the port while the proxy refuses, so that no other program takes it.
        self._reserving_socket: socket.socket | None = None
        self._listener: socket.socket | None = None

    @property
    def address(self) -> str:
        """The proxy's address in a URL: `127.0.0.1:port`, or the folder of the socket."""
        return str(self.folder) if self.folder is not None else f"127.0.0.1:{self.port}"

    @property
    def client_count(self) -> int:
        """The number of connected clients."""
        return len(self._state.connections)

    @property
    def dropped_bytes(self) -> int:
        """The number of bytes that were dropped since the start, in the modes that drop bytes."""
        return self._state.dropped_bytes

    def start(self) -> None:
        """Listen, and start the proxy's thread, unless it runs already. Raises OSError."""
        if self._loop is not None:
            return
        if self.folder is None:
            self._reserving_socket = _bind_to_port(0)
            self.port = self._reserving_socket.getsockname()[1]
        else:
            self.port = POSTGRES_PORT
        self._loop = asyncio.new_event_loop()
        name = f"proxy {self.address}"
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        try:
            self._run_in_loop(self._set_mode())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Cut all connections, end the thread, and free the sockets and the port.

        Nothing happens if the proxy is not running.
        """
        if self._loop is None or self._thread is None:
            return
        self._run_in_loop(self._set_mode(refuses=True))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_SECONDS)
        self._loop.close()
        self._loop = self._thread = None
        self._state = ProxyState(self._state.target, self._state.server_speaks_first)
        if self._reserving_socket is not None:
            self._reserving_socket.close()
        if self.folder is not None:
            (self.folder / SOCKET_NAME).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- modes ------------------------------------------------------------------------------------

    def pass_on(self) -> None:
        """Pass everything on again, and deliver delayed bytes at once.

        A connection that has dropped bytes is cut, so that half a message is never delivered.
        """
        self._run_in_loop(self._set_mode())

    def delay(self, seconds: float) -> None:
        """Deliver each chunk this many seconds later, in each direction, in order."""
        self._run_in_loop(self._set_mode(delay=seconds))

    def black_hole(self) -> None:
        """Read and drop all bytes. If one side closes, do not close the other side.

        New clients are accepted and get no answer.
        """
        self._run_in_loop(self._set_mode(drops_everything=True))

    def refuse(self) -> None:
        """Cut existing connections and refuse new ones, like a server that is down."""
        self._run_in_loop(self._set_mode(refuses=True))

    def black_hole_replication(self) -> None:
        """Drop what a server sends to its replicas, and pass everything else on.

        A client that has sent PSYNC is a replica. Its connection stays open.
        """
        self._run_in_loop(self._set_mode(drops_replication=True))

    # --- at any time ------------------------------------------------------------------------------

    def cut(self) -> None:
        """End all existing connections. The mode stays as it is, also for new connections."""
        self._run_in_loop(self._cut(self._state.connections))

    def switch(self, target: Address) -> None:
        """Send new connections to `target` and cut the existing ones."""
        self._state.target = target
        self.cut()

    def lose_reply(self, match: bytes, *, after: bytes = b"") -> ProxyRule:
        """Lose the reply to the next request that contains `match`, on any connection.

        The server gets the request and answers. The proxy drops the answer and closes the client's
        connection. In a pipeline the later replies are lost, too. With `after`, the request must
        come on a connection that has sent the bytes `after` since this call. Return the rule, which
        shows whether it has fired.

        `match` is compared with the bytes on the wire. For example, Django sends COMMIT in
        capitals, and psycopg sends the parameters of a statement before it is executed.
        """
        return self._add_rule(ProxyRule(match, after))

    def lose_request(self, match: bytes) -> ProxyRule:
        """Lose the next request that contains `match`: close its connection and deliver nothing."""
        return self._add_rule(ProxyRule(match, loses="request"))

    def look_for(self, match: bytes) -> ProxyRule:
        """Lose nothing, but return a rule that fires at the next request that contains `match`."""
        return self._add_rule(ProxyRule(match, loses="nothing"))

    def _add_rule(self, rule: ProxyRule) -> ProxyRule:
        self._state.rules.append(rule)
        return rule

    # --- in the proxy's thread -------------------------------------------------------------------

    async def _set_mode(
        self,
        *,
        delay: float = 0.0,
        drops_everything: bool = False,
        refuses: bool = False,
        drops_replication: bool = False,
    ) -> None:
        """Replace the mode, and cut the connections that cannot go on in the new mode."""
        proxy_state = self._state
        proxy_state.delay = delay
        proxy_state.drops_everything = drops_everything
        proxy_state.drops_replication = drops_replication
        proxy_state.mode_changed.set()
        proxy_state.mode_changed = asyncio.Event()
        await asyncio.sleep(0)  # lets the connections pass delayed bytes on, or drop them
        if refuses:
            self._close_listener()
            await self._cut(proxy_state.connections)
        else:
            self._listen()
            # A connection that has dropped bytes would deliver half a message.
            await self._cut(
                connection
                for connection in proxy_state.connections
                if connection.has_dropped_data and not connection.is_dropping(connection.server)
            )

    async def _cut(self, connections: Iterable[Connection]) -> None:
        """End these connections, and wait until they have closed their sockets."""
        tasks = [connection.task for connection in connections]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _listen(self) -> None:
        """Accept new clients from now on. Raises OSError if the socket cannot be bound."""
        if self._listener is not None:
            return
        if self.folder is None:
            self._listener = _bind_to_port(self.port)
            # Accepted connections inherit this, so that none in TIME_WAIT blocks the port.
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            (self.folder / SOCKET_NAME).unlink(missing_ok=True)
            self._listener.bind(str(self.folder / SOCKET_NAME))
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG_CONNECTIONS)
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _close_listener(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        """Start a connection for each client that waits to be accepted."""
        # asyncio.Server is not used: when closed, it would lose connections that it is accepting.
        with suppress(BlockingIOError, ConnectionAbortedError):
            while True:
                Connection(self._state, listener.accept()[0])

    def _run_in_loop(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the proxy's thread, and wait for it."""
        if self._loop is None:
            coroutine.close()
            raise RuntimeError("the proxy is not running: call start() first")
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_TIMEOUT_SECONDS)


def _bind_to_port(port: int) -> socket.socket:
    """Return a new socket that is bound to this port, or to a free port if `port` is 0."""
    new_socket = socket.socket()
    # A proxy binds two sockets to its port: one reserves the port, the other listens.
    new_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    new_socket.bind(("127.0.0.1", port))
    return new_socket
