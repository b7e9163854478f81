"""A small proxy before Redis, PostgreSQL or ZooKeeper: what a network does to a shop, on demand.

One asyncio loop in one thread of the load test's process; its methods may be called from any other
thread, and what they say is so when they return. Where it stands tells what it does: before a node
it cuts the node off from its server, between a master and its replica it stops replication.

    with Proxy(("127.0.0.1", valkey.port)) as proxy:
        node = Node(..., environment={"REDIS_URL": f"redis://{proxy.address}"})
        lost = proxy.lose_reply(b"lock:product:1")
        ...
        assert lost.fired

Half-closed connections are not for it: a side that sends no more is taken for closed.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from servers.proxy.link import Address, Conditions, Link
from servers.proxy.lost_reply import LostReply

__all__ = ["Address", "LostReply", "Proxy"]

T = TypeVar("T")
#: Where a PostgreSQL client looks in a folder.
SOCKET = ".s.PGSQL.5432"
#: Clients that knock at once, at most: a whole rush.
BACKLOG = 1024
#: Seconds for the proxy's own thread to do as told.
PATIENCE = 10.0


class Proxy:
    """Passes everything on between its clients and `target` until it is told otherwise.

    target  (host, port) of the server, or the path of its Unix socket
    folder  listen on a Unix socket there, as PostgreSQL does, and not on a free port of 127.0.0.1
    name    for its thread

    pass_on, delay, black_hole, refuse and black_hole_replication each take the place of the one
    before. The others (cut, switch, lose_reply) may come at any time.
    """

    def __init__(self, target: Address, *, folder: Path | None = None, name: str = "") -> None:
        self.folder = folder
        self.name = name
        self.port = 0
        self._conditions = Conditions(target)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._bound: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._accepting: set[asyncio.Task[Any]] = set()

    @property
    def address(self) -> str:
        """For a URL: `127.0.0.1:port`, or the folder of the socket."""
        return str(self.folder) if self.folder is not None else f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many clients are on it."""
        return len(self._conditions.links)

    def start(self) -> None:
        """Listen. Raises OSError when the port or the socket cannot be had."""
        if self._loop is not None:
            return
        self._bind()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop,), name=f"proxy {self.name}".strip(), daemon=True
        )
        self._thread.start()
        try:
            self._tell(self._settle())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Cut everything; no thread, socket or port is left. Nothing happens if it is stopped."""
        if self._loop is None or self._thread is None:
            return
        self._conditions.refusing = True
        self._tell(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop = self._thread = None
        self._conditions = Conditions(self._conditions.target)
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        if self.folder is not None:
            with suppress(FileNotFoundError):
                (self.folder / SOCKET).unlink()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- what happens to bytes -------------------------------------------------------------------

    def pass_on(self) -> None:
        """Back to normal, for new and existing connections. One that lost bytes is cut, so that
        no half message is ever delivered; what was delayed is delivered at once."""
        self._tell(self._settle())

    def delay(self, seconds: float) -> None:
        """Each chunk comes so much later, in each direction; their order stays."""
        self._tell(self._settle(delay=seconds))

    def black_hole(self) -> None:
        """All bytes are taken and dropped, and a close as well; nobody is told. Those who come now
        are accepted and hear nothing."""
        self._tell(self._settle(hole=True))

    def refuse(self) -> None:
        """Existing connections are cut, new ones refused, as by a server that is down."""
        self._tell(self._settle(refusing=True))

    def black_hole_replication(self) -> None:
        """What a server sends to its replicas (connections on which PSYNC was sent) is dropped and
        their link stays open; everybody else is passed on."""
        self._tell(self._settle(replication_hole=True))

    def cut(self) -> None:
        """End all existing connections and go on."""
        self._tell(self._cut())

    def switch(self, target: Address) -> None:
        """Take new connections there; the existing ones are cut."""
        self._tell(self._cut(target))

    def lose_reply(self, match: bytes, *, after: bytes = b"") -> LostReply:
        """Lose one reply: that to the next request that contains `match`, on any connection.

        With `after`, on a connection that has sent those bytes before it, after this call. The
        server gets the request and answers; the answer is thrown away and the client's connection
        closed. The replies to what was sent along with it (a pipeline) are lost, too. Bytes are
        compared as they are sent: COMMIT in capitals, a parameter of psycopg in the message before.
        """
        rule = LostReply(match, after)
        self._tell(self._add(rule))
        return rule

    # --- in the proxy's thread -------------------------------------------------------------------

    async def _settle(
        self,
        *,
        delay: float = 0.0,
        hole: bool = False,
        refusing: bool = False,
        replication_hole: bool = False,
    ) -> None:
        now = self._conditions
        now.delay, now.hole, now.refusing, now.replication_hole = (
            *(delay, hole, refusing, replication_hole),
        )
        if refusing:
            await self._end()
        else:
            await self._listen()
            for link in list(now.links):
                link.settle()

    async def _cut(self, target: Address | None = None) -> None:
        self._conditions.target = target or self._conditions.target
        for link in list(self._conditions.links):
            link.cut()

    async def _add(self, rule: LostReply) -> None:
        self._conditions.rules.append(rule)

    async def _end(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self._cut()
        # Whom the loop was about to let in is cut on arrival: the conditions say `refusing`.
        await asyncio.gather(*self._accepting, return_exceptions=True)
        while self._conditions.links:  # their sockets are closed in the next round of the loop
            await asyncio.sleep(0)

    async def _listen(self) -> None:
        if self._listener is not None:
            return
        loop = asyncio.get_running_loop()
        if self.folder is not None:
            self._listener = socket.socket(socket.AF_UNIX)
            (self.folder / SOCKET).unlink(missing_ok=True)
            self._listener.bind(str(self.folder / SOCKET))
        else:
            self._listener = _on_port(self.port)
            # Inherited by its connections: what remains of them keeps nobody from the port later.
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        # Not asyncio's server: one that is closed loses the connections that it was accepting.
        loop = asyncio.get_running_loop()
        with suppress(BlockingIOError, ConnectionAbortedError):
            while True:
                connection, _ = listener.accept()
                made = loop.connect_accepted_socket(
                    lambda: Link(self._conditions).client, connection
                )
                accepting = loop.create_task(made)
                self._accepting.add(accepting)
                accepting.add_done_callback(self._accepting.discard)

    # --- the thread ------------------------------------------------------------------------------

    def _bind(self) -> None:
        """Keep the port, listening or not: while it refuses, nobody else may take it."""
        if self.folder is not None:
            self.port = int(SOCKET.rpartition(".")[2])
        else:
            self._bound = _on_port(0)
            self.port = self._bound.getsockname()[1]

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()

    def _tell(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("the proxy does not run: call start() first")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


def _on_port(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # by another socket of this proxy
    bound.bind(("127.0.0.1", port))
    return bound
