"""One connection for all tasks of a loop: commands are sent, and replies come back, in order.

A reply belongs to a future, and futures are kept in the order of their commands. So a task that is
cancelled in the middle leaves a future that nobody waits for, not a reply that the next one reads;
and what it sends after that, to give a lock back, arrives after what it sent before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, TypeAlias

from ..connection import Address
from ..scripts import WireError, is_of_the_client, packed
from .link import Link

#: Seconds that the last replies are waited for when the loop ends.
LINGER = 0.5

Reply: TypeAlias = "asyncio.Future[Any]"


class Line:
    """A connection that opens itself, and is closed by close(), by an error, or with its loop.

    usable  False once it failed or is to be used no more: make another one
    ended   whether it is closed
    """

    def __init__(self, address: Address) -> None:
        self.usable = True
        self.ended = False
        self._timeout = address.timeout
        self._loop = asyncio.get_running_loop()
        self._outbox: dict[Reply, bytes] = {}
        self._sent: deque[Reply] = deque()
        self._link = Link(address, opened=self._flush, received=self._answer, lost=self._fail)

    def submit(self, command: bytes, asking: bool = False) -> Reply:
        """Send it, as soon as the connection is open. Cancelling the future before that unsends it.

        asking  whether ASKING goes before it

        The future raises WireError for an error, and for anything but a reply: at once, if the
        connection is closed.
        """
        if asking:
            self.submit(packed("ASKING")).add_done_callback(_retrieved)
        reply: Reply = self._loop.create_future()
        if self._link.is_open:
            self._sent.append(reply)
            self._link.write(command)
        elif self.ended:
            reply.set_exception(WireError(ConnectionError("the connection is closed"), sent=False))
        else:
            self._outbox[reply] = command
        return reply

    def expire(self, reply: Reply) -> None:
        """Nobody waits for this reply any longer: the server is silent, and this line with it."""
        if reply.done():
            return
        cause = TimeoutError("the server did not answer in time")
        reply.set_exception(WireError(cause, sent=reply not in self._outbox))
        self.retire()

    def retire(self) -> None:
        """Send nothing new here. Others may still wait for their replies."""
        if self.usable:
            self.usable = False
            self._loop.call_later(self._timeout, self._link.close)

    def has_moved(self) -> bool:
        """Whether the Sentinels have named another master since it was opened."""
        return self._link.has_moved()

    async def aclose(self) -> None:
        """Send what is to be sent, wait a moment for the replies, and close it."""
        self.usable = False
        if waiting := {*self._sent, *self._outbox}:
            await asyncio.wait(waiting, timeout=LINGER)
        await self._link.aclose()

    def _flush(self) -> None:
        for reply, command in self._outbox.items():
            if not reply.done():
                self._sent.append(reply)
                self._link.write(command)
        self._outbox.clear()

    def _answer(self, answer: Any) -> None:
        reply = self._sent.popleft()
        if reply.done():
            return
        if isinstance(answer, Exception):
            reply.set_exception(WireError(answer, sent=True))
        else:
            reply.set_result(answer)

    def _fail(self, error: BaseException) -> None:
        """With WireError, or with the error itself if it is not the client's (a credential
        provider's, say)."""
        self.usable, self.ended = False, True
        known = is_of_the_client(error) or isinstance(error, TimeoutError)
        for reply, sent in [
            *((r, True) for r in self._sent),
            *((r, False) for r in self._outbox),
        ]:
            if not reply.done():
                reply.set_exception(WireError(error, sent=sent) if known else error)
        self._sent.clear()
        self._outbox.clear()


def _retrieved(reply: Reply) -> None:
    """Its result does not matter: the command that was sent with it has the same fate."""
    if not reply.cancelled():
        reply.exception()
