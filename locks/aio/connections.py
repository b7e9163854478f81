"""How the tasks of one loop talk to one server: each command sent once, on one connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..connection import Address
from ..scripts import Arg, Call, Script, eval_, evalsha, packed
from .line import Line, Reply


class AsyncConnections:
    """The connection that is in use, and a new one when it failed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._line: Line | None = None
        self._retired: list[Line] = []  # others may still wait for replies there
        self.on_demoted: Callable[[], None] = lambda: None

    @property
    def line(self) -> Line:
        """The connection for the next command."""
        line = self._line
        if line is None or not line.usable or line.has_moved():
            self._retired = [each for each in self._retired if not each.ended]
            if line is not None:
                line.retire()
                self._retired.append(line)
            line = self._line = Line(self._address, self.demoted)
        return line

    async def call(
        self,
        script: Script,
        keys: Sequence[bytes],
        args: Sequence[Arg],
        *,
        within: float | None,
        asking: bool = False,
    ) -> Any:
        """Run the script, by its SHA-1, or its text where the server has not got it.

        asking  whether a node of a cluster sent us here by ASK
        within  seconds that it may take; the client's socket timeout if that is less or None is
                given

        Raises WireError. Cancelled, it leaves nothing behind: a command not sent yet is never sent.
        """
        return await self.post(script, keys, args, within=within, asking=asking)

    async def call_all(self, calls: Sequence[Call], *, within: float | None) -> list[Any]:
        """Run several, all sent before the first reply is read.

        Returns replies, with the exception in the place of one that is an error.
        """
        replies = [self.post(*call, within=within) for call in calls]
        try:
            return [await in_place(reply) for reply in replies]
        finally:
            for reply in replies:
                reply.cancel()

    def post(
        self,
        script: Script,
        keys: Sequence[bytes],
        args: Sequence[Arg],
        *,
        within: float | None,
        asking: bool = False,
    ) -> Reply:
        """Run the script, whether or not anybody awaits the returned future, which gets its reply.

        Sent before this returns, if the connection is open.
        """
        by_text = partial(eval_, script, keys, args)
        return self._submit(evalsha(script, keys, args), within, by_text, asking=asking)

    def run(self, *command: str | bytes, within: float) -> Reply:
        """The reply to a command without a script. Raises WireError."""
        return self._submit(packed(*command), within)

    def _submit(
        self, packed: bytes, within: float | None, *how: Any, asking: bool = False
    ) -> Reply:
        line, timeout = self.line, self._address.timeout
        reply = line.submit(packed, *how, asking=asking)
        seconds = timeout if within is None else min(within, timeout)
        timer = reply.get_loop().call_later(seconds, line.expire, reply)

        def answered(reply: Reply) -> None:
            timer.cancel()
            if not reply.cancelled():
                reply.exception()  # retrieved: nobody need wait for it

        reply.add_done_callback(answered)
        return reply

    async def aclose(self) -> None:
        """Close the connection."""
        for line in [*self._retired, *([self._line] if self._line else ())]:
            await line.aclose()

    def demoted(self) -> None:
        """The server became a replica: leave it, and say so to on_demoted."""
        self.leave()
        self.on_demoted()

    def leave(self) -> None:
        """Send the next command on a new connection."""
        if self._line is not None:
            self._line.retire()


async def in_place(reply: Reply) -> Any:
    """The reply, or the exception in its place."""
    try:
        return await reply
    except Exception as error:
        return error
