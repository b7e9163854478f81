"""The connection on which the tasks of one loop send commands, each once, and in order.

A reply belongs to a future, and futures are kept in the order of their commands. So a task that is
cancelled in the middle leaves a future that nobody waits for, not a reply that the next one reads;
and what it sends after that, to give a lock back, arrives after what it sent before.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..connection import Address
from ..protocol import (
    Call,
    WireError,
    eval_,
    evalsha,
    is_a,
    is_of_the_client,
    is_refusal_of_replica,
    packed,
)
from .link import Link

S = TypeVar("S")
T = TypeVar("T")

#: Seconds that the last replies are waited for when the loop ends.
LAST_REPLIES_SECONDS = 0.5

Reply: TypeAlias = "asyncio.Future[Any]"


class Command(NamedTuple):
    """What is sent, and where its reply goes.

    script  sent by its text instead where the server does not know it
    asking  whether ASKING goes before it
    """

    reply: Reply
    packed: bytes
    script: Call | None = None
    asking: bool = False


class CommandConnection:
    """A connection that opens itself, and is closed by close(), by an error, or with its loop.

    refused  called when the server says that it is a replica
    usable   False once it failed or is to be used no more: make another one
    ended    whether it is closed
    """

    def __init__(self, address: Address, refused: Callable[[], None]) -> None:
        self.usable = True
        self.ended = False
        self._refused = refused
        self._timeout = address.timeout
        self._loop = asyncio.get_running_loop()
        self._outbox: dict[Reply, Command] = {}
        self._sent: deque[Command] = deque()
        self._link = Link(address, opened=self._flush, received=self._answer, lost=self._fail)

    def submit(self, packed: bytes, script: Call | None = None, *, asking: bool = False) -> Reply:
        """Send it, as soon as the connection is open. Cancelling the future before that unsends it.

        The future raises WireError for an error, and for anything but a reply: at once, if the
        connection is closed.
        """
        command = Command(self._loop.create_future(), packed, script, asking)
        if self._link.is_open:
            self._send(command)
        elif self.ended:
            error = WireError(ConnectionError("the connection is closed"), sent=False)
            command.reply.set_exception(error)
        else:
            self._outbox[command.reply] = command
        return command.reply

    def expire(self, reply: Reply) -> None:
        """Fail this reply: the server did not answer it in time. Send nothing new here."""
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
        try:
            if waiting := {*(command.reply for command in self._sent), *self._outbox}:
                await asyncio.wait(waiting, timeout=LAST_REPLIES_SECONDS)
        finally:  # asyncio.run cancels the task that closes, too
            await self._link.aclose()

    def _send(self, command: Command) -> None:
        if command.asking:
            asking = Command(self._loop.create_future(), packed("ASKING"))
            asking.reply.cancel()  # nobody waits: what follows it has the same fate
            self._send(asking)
        self._sent.append(command)
        self._link.write(command.packed)

    def _flush(self) -> None:
        for command in self._outbox.values():
            if not command.reply.done():
                self._send(command)
        self._outbox.clear()

    def _answer(self, answer: Any) -> None:
        command = self._sent.popleft()
        reply = command.reply
        if reply.done():
            return
        if not isinstance(answer, Exception):
            reply.set_result(answer)
        elif command.script is not None and is_a(answer, "NoScriptError") and self._link.is_open:
            self._send(command._replace(packed=eval_(*command.script), script=None))
        else:
            reply.set_exception(WireError(answer, sent=True))
            if is_refusal_of_replica(answer):
                self._refused()

    def _fail(self, error: BaseException) -> None:
        """Fail all replies with WireError, or with an error that is not the client's own.

        A credential provider may raise such an error.
        """
        self.usable, self.ended = False, True
        known = is_of_the_client(error)
        for reply, sent in [
            *((command.reply, True) for command in self._sent),
            *((reply, False) for reply in self._outbox),
        ]:
            if not reply.done():
                reply.set_exception(WireError(error, sent=sent) if known else error)
        self._sent.clear()
        self._outbox.clear()


class AsyncConnections:
    """The connection that is in use, and a new one when it failed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connections: list[
            CommandConnection
        ] = []  # the last one is in use; on the others replies may be due
        self.on_demoted: Callable[[], None] = lambda: None

    @property
    def current_connection(self) -> CommandConnection:
        """The connection for the next command."""
        if (
            not self._connections
            or not self._connections[-1].usable
            or self._connections[-1].has_moved()
        ):
            self.leave()
            open_ones = [each for each in self._connections if not each.ended]
            self._connections = [*open_ones, CommandConnection(self._address, self.demoted)]
        return self._connections[-1]

    def call(self, command: Call, *, within: float | None, asking: bool = False) -> Reply:
        """Run the script, whether or not anybody awaits the returned future, which gets its reply.

        See Connections.call(). Sent before this returns, if the connection is open. A future that
        is cancelled leaves nothing behind: a command not sent yet is never sent.
        """
        return self._submit(evalsha(*command), within, command, asking=asking)

    post = call  # in a cluster, call() follows its slot before it sends: see AsyncSlotResources

    def run(self, *command: str | bytes, within: float) -> Reply:
        """Return the reply to a command without a script. Raises WireError."""
        return self._submit(packed(*command), within)

    def _submit(
        self, packed: bytes, within: float | None, *how: Any, asking: bool = False
    ) -> Reply:
        connection = self.current_connection
        timeout = self._address.timeout
        reply = connection.submit(packed, *how, asking=asking)
        seconds = timeout if within is None else min(within, timeout)
        timer = reply.get_loop().call_later(seconds, connection.expire, reply)

        def answered(reply: Reply) -> None:
            timer.cancel()
            if not reply.cancelled():
                reply.exception()  # retrieved: nobody need wait for it

        reply.add_done_callback(answered)
        return reply

    async def aclose(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            await connection.aclose()

    def demoted(self) -> None:
        """Leave a server that became a replica, and call on_demoted."""
        self.leave()
        self.on_demoted()

    def leave(self) -> None:
        """Send the next command on a new connection."""
        for connection in self._connections:
            connection.retire()


async def in_place(reply: Reply) -> Any:
    """Return the reply, or the exception in its place."""
    try:
        return await reply
    except Exception as error:
        return error


async def run_async(steps: Generator[S, Any, T], do: Callable[[S], Awaitable[Any]]) -> T:
    """As steps.run_steps, by awaiting `do`. A cancellation is thrown into the steps, too."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()
