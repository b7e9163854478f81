"""One connection for all tasks of a loop: commands go out in order, and so do replies come back.

A reply belongs to a future, and futures are kept in the order of their commands. So a task that is
cancelled in the middle leaves a future that nobody waits for, not a reply that the next one reads;
and what it sends after that, to give a lock back, arrives after what it sent before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from ..command import Address, WireError, has_moved, is_a, is_of_the_client

#: Seconds that the last replies are waited for when the loop ends.
LINGER = 0.5

Command = Sequence[bytes | str]
Reply: TypeAlias = "asyncio.Future[Any]"


class Line:
    """A connection that opens itself, and is closed by close(), by an error, or with its loop.

    usable  False once it failed or is to be used no more: make another one
    """

    def __init__(self, address: Address) -> None:
        self.usable = True
        self._closing = False
        self._timeout = address.timeout
        self._connection = address.connection(socket_timeout=None)
        self._loop = asyncio.get_running_loop()
        self._open = False
        self._outbox: deque[tuple[Command, Reply]] = deque()
        self._sent: deque[Reply] = deque()
        self._task = self._loop.create_task(self._run(), name="locks.connection")

    def submit(self, command: Command, asking: bool = False) -> Reply:
        """Send it, as soon as the connection is open. Cancelling the future before that unsends it.

        asking  whether ASKING goes before it

        The future raises WireError for an error, and for anything but a reply.
        """
        if asking:
            self.submit(("ASKING",)).add_done_callback(_retrieved)
        reply: Reply = self._loop.create_future()
        if self._open:
            self._send(command, reply)
        else:
            self._outbox.append((command, reply))
        return reply

    def expire(self, reply: Reply) -> None:
        """Nobody waits for this reply any longer: the server is silent, and this line with it."""
        if reply.done():
            return
        unsent = any(each is reply for _, each in self._outbox)
        cause = TimeoutError("the server did not answer in time")
        reply.set_exception(WireError(cause, sent=not unsent))
        self.retire()

    def retire(self) -> None:
        """Send nothing new here. Others may still wait for their replies."""
        if self.usable:
            self.usable = False
            self._loop.call_later(self._timeout, self.close)

    def has_moved(self) -> bool:
        """Whether the Sentinels have named another master since it was opened."""
        return self._open and has_moved(self._connection)

    def close(self) -> None:
        """Close it now; who still waits gets an error."""
        self.usable = False
        self._closing = True
        self._task.cancel()

    async def aclose(self) -> None:
        """Send what is to be sent, wait a moment for the replies, and close it."""
        self.usable = False
        if waiting := {*self._sent, *(reply for _, reply in self._outbox)}:
            await asyncio.wait(waiting, timeout=LINGER)
        self.close()
        await asyncio.wait({self._task})

    def _send(self, command: Command, reply: Reply) -> None:
        self._sent.append(reply)
        self._connection._writer.writelines(self._connection.pack_command(*command))

    async def _run(self) -> None:
        connection = self._connection
        error: BaseException = ConnectionError("the connection was closed")
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()
            self._open = True
            while self._outbox:
                command, reply = self._outbox.popleft()
                if not reply.done():
                    self._send(command, reply)
            while True:
                await self._read(connection)
        except asyncio.CancelledError:
            if self._open and not self._closing:
                await self._linger(connection)
            raise
        except Exception as caught:
            error = caught
        finally:
            self.usable = self._open = False
            for reply in self._sent:
                _fail(reply, error, sent=True)
            for _, reply in self._outbox:
                _fail(reply, error, sent=False)
            await connection.disconnect(nowait=True)

    async def _linger(self, connection: Any) -> None:
        """Not closed but cancelled, as asyncio.run does at its end with all tasks. Those that hold
        or want a lock are cancelled as well, and send now what gives it back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await asyncio.sleep(0)
                while self._sent:
                    await self._read(connection)
                    await asyncio.sleep(0)

    async def _read(self, connection: Any) -> None:
        try:
            answer = await connection.read_response(
                disable_decoding=True, disconnect_on_error=False
            )
        except Exception as error:
            if not is_a(error, "ResponseError"):
                raise
            reply = self._sent.popleft()
            _fail(reply, error, sent=True)
        else:
            reply = self._sent.popleft()
            if not reply.done():
                reply.set_result(answer)


def _fail(reply: Reply, error: BaseException, *, sent: bool) -> None:
    """With WireError, or the error itself if it is none of the client, as a provider's may be."""
    if reply.done():
        return
    known = is_of_the_client(error) or isinstance(error, TimeoutError)
    reply.set_exception(WireError(error, sent=sent) if known else error)


def _retrieved(reply: Reply) -> None:
    """What became of it does not matter: what was sent with it fares likewise."""
    if not reply.cancelled():
        reply.exception()
