"""The connection on which the tasks of one loop send commands, each once, and in order.

Each command has a future for its reply, and the futures are kept in the order of the commands. If a
task is cancelled while it waits for a reply, its future stays in that order. So the next task does
not read the reply to the command of the cancelled task. If the cancelled task then sends a command
to release a lock, this command arrives after the earlier commands of the task.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..connection import Address
from ..sans_io.protocol import (
    Call,
    WireError,
    has_class_named,
    is_client_error,
    is_refusal_of_replica,
    pack_command,
    pack_eval,
    pack_evalsha,
)
from .link import Link

S = TypeVar("S")
T = TypeVar("T")

#: Time to wait for the last replies when the loop ends.
LAST_REPLIES_SECONDS = 0.5

Reply: TypeAlias = "asyncio.Future[Any]"


class Command(NamedTuple):
    """A command to send, and the future of its reply.

    Attributes:
        reply: The future of the reply.
        packed: The command in RESP.
        script: The script whose text is sent if the server does not know its SHA-1.
        asking: Whether ASKING is sent first.
    """

    reply: Reply
    packed: bytes
    script: Call | None = None
    asking: bool = False


class CommandConnection:
    """A connection that opens itself, and is closed by aclose(), by an error, or after retire().

    Args:
        address: The address.
        on_refusal: Called when the server refuses a command because it became a replica.

    Attributes:
        is_usable: False once the connection failed or was retired, so that a new one is needed.
        has_ended: Whether the connection is closed.
    """

    def __init__(self, address: Address, on_refusal: Callable[[], None]) -> None:
        self.is_usable = True
        self.has_ended = False
        self._on_refusal = on_refusal
        self._timeout = address.timeout
        self._loop = asyncio.get_running_loop()
        self._outbox: dict[Reply, Command] = {}  # not sent, because the link is not open yet
        self._sent: deque[Command] = deque()  # sent, but without a reply
        self._link = Link(
            address, on_open=self._flush, on_reply=self._on_reply, on_end=self._fail_all
        )

    def submit(self, packed: bytes, script: Call | None = None, *, asking: bool = False) -> Reply:
        """Send a command as soon as the connection is open, and return the future of its reply.

        If the future is cancelled before the connection is open, the command is not sent. The
        future raises WireError if the reply is an error, or if no reply comes. If the connection is
        closed, the future raises WireError at once.

        Args:
            packed: The command in RESP.
            script: The script whose text is sent if the server does not know its SHA-1.
            asking: Whether to send ASKING first.
        """
        command = Command(self._loop.create_future(), packed, script, asking)
        if self._link.is_open:
            self._send(command)
        elif self.has_ended:
            error = WireError(ConnectionError("the connection is closed"), sent=False)
            command.reply.set_exception(error)
        else:
            self._outbox[command.reply] = command
        return command.reply

    def expire(self, reply: Reply) -> None:
        """Fail a reply that did not arrive in time. Retire the connection if the command was sent.

        A command that was not sent waits in the outbox until the connection has opened. Then the
        connection is kept for later commands, because a new one would not open sooner. The opening
        has a separate timeout.
        """
        if reply.done():
            return
        cause = TimeoutError("the server did not answer in time")
        was_sent = self._outbox.pop(reply, None) is None
        reply.set_exception(WireError(cause, sent=was_sent))
        if was_sent:
            self.retire()

    def retire(self) -> None:
        """Have later commands use a new connection, and close this one after the client's timeout.

        Until then, replies to the commands that were submitted may still arrive.
        """
        if self.is_usable:
            self.is_usable = False
            self._loop.call_later(self._timeout, self._link.close)

    def has_master_moved(self) -> bool:
        """Return whether the Sentinels have named another master since the connection opened."""
        return self._link.has_master_moved()

    async def aclose(self) -> None:
        """Send the queued commands, wait a moment for the replies, and close the connection."""
        self.is_usable = False
        try:
            pending_replies = {command.reply for command in self._sent}
            pending_replies.update(self._outbox)
            if pending_replies:
                await asyncio.wait(pending_replies, timeout=LAST_REPLIES_SECONDS)
        finally:  # even if asyncio.run() cancels this task
            await self._link.aclose()

    def _send(self, command: Command) -> None:
        """Write a command to the open link, after ASKING if the command needs it."""
        if command.asking:
            asking = Command(self._loop.create_future(), pack_command("ASKING"))
            # The reply to ASKING is not needed: if ASKING fails, the next command also fails.
            asking.reply.cancel()
            self._send(asking)
        try:
            self._sent.append(command)
            self._link.write(command.packed)
        except BaseException:
            # A signal handler raised an exception. If the command was not written, the next replies
            # would be matched with the wrong commands.
            self._link.close(ConnectionError("sending a command was interrupted"))
            if command.reply.done() and not command.reply.cancelled():
                # The caller never gets this future. Without this call, asyncio would warn that
                # its exception was not retrieved.
                command.reply.exception()
            raise

    def _flush(self) -> None:
        """Send the commands that waited until the link was open."""
        for command in self._outbox.values():
            if not command.reply.done():
                self._send(command)
        self._outbox.clear()

    def _on_reply(self, answer: Any) -> None:
        """Set the result of the future of the oldest command that has no answer yet.

        If the server does not know the script, send the script's text instead. The answer to an
        ASKING command is ignored, because the future of that command was cancelled.
        """
        command = self._sent.popleft()
        reply_future = command.reply
        if reply_future.done():
            return
        if not isinstance(answer, Exception):
            reply_future.set_result(answer)
        elif (
            command.script is not None
            and has_class_named(answer, "NoScriptError")
            and self._link.is_open
        ):
            self._send(command._replace(packed=pack_eval(*command.script), script=None))
        else:
            reply_future.set_exception(WireError(answer, sent=True))
            if is_refusal_of_replica(answer):
                self._on_refusal()

    def _fail_all(self, error: BaseException) -> None:
        """Fail all replies, because the connection ended with an error.

        Each future raises a WireError if the client library or the socket raised `error`. Otherwise
        it raises `error` itself, for example an exception of a credential provider.
        """
        self.is_usable = False
        self.has_ended = True
        is_from_client = is_client_error(error)
        sent = [(command.reply, True) for command in self._sent]
        unsent = [(reply, False) for reply in self._outbox]
        for reply, was_sent in sent + unsent:
            if not reply.done():
                failure = WireError(error, sent=was_sent) if is_from_client else error
                reply.set_exception(failure)
        self._sent.clear()
        self._outbox.clear()


class AsyncConnections:
    """The connections to one server. Commands use the last one; a new one replaces it if it fails.

    Attributes:
        on_server_became_replica: Called after leave_replica() retired the connections.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        #: Commands are sent on the last connection. Replies may still arrive on the earlier ones.
        self._connections: list[CommandConnection] = []
        self.on_server_became_replica: Callable[[], None] = lambda: None

    @property
    def current_connection(self) -> CommandConnection:
        """The connection for the next command.

        A new connection is made if the last one is unusable, or if the Sentinels have named another
        master.
        """
        if (
            not self._connections
            or not self._connections[-1].is_usable
            or self._connections[-1].has_master_moved()
        ):
            self.retire_all()
            self._connections = [
                connection for connection in self._connections if not connection.has_ended
            ]
            self._connections.append(CommandConnection(self._address, self.leave_replica))
        return self._connections[-1]

    def call(self, command: Call, *, timeout: float | None, asking: bool = False) -> Reply:
        """Run a script as Connections.call() does, and return the future of its reply.

        If the connection is open, the command is sent before this method returns, and it runs even
        if the future is not awaited. If the future is cancelled before the command is sent, the
        command is never sent.
        """
        return self._submit(pack_evalsha(*command), timeout, command, asking=asking)

    #: Sends the command at once, as call() does here. In a cluster call() is a coroutine function,
    #: which sends nothing until it is awaited, so post() differs: see AsyncSlotResources.
    post = call

    def run(self, *command: str | bytes, timeout: float) -> Reply:
        """Send a command that is not a script, and return the future of its reply."""
        return self._submit(pack_command(*command), timeout)

    def _submit(
        self,
        packed: bytes,
        timeout: float | None,
        script: Call | None = None,
        *,
        asking: bool = False,
    ) -> Reply:
        """Submit a command. Its future fails after `timeout` seconds if no reply has come.

        The client's timeout applies if it is shorter, or if `timeout` is None.
        """
        connection = self.current_connection
        client_timeout = self._address.timeout
        reply = connection.submit(packed, script, asking=asking)
        seconds = client_timeout if timeout is None else min(timeout, client_timeout)
        timer = reply.get_loop().call_later(seconds, connection.expire, reply)

        def on_reply(reply: Reply) -> None:
            timer.cancel()
            if not reply.cancelled():
                # This retrieves the exception, so that asyncio does not warn if no task awaits it.
                reply.exception()

        reply.add_done_callback(on_reply)
        return reply

    async def aclose(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            await connection.aclose()

    def leave_replica(self) -> None:
        """Stop using a server that became a replica, and call on_server_became_replica."""
        self.retire_all()
        self.on_server_became_replica()

    def retire_all(self) -> None:
        """Retire all connections, so that the next command opens a new one."""
        for connection in self._connections:
            connection.retire()


async def reply_or_exception(reply: Reply) -> Any:
    """Return the result of a future, or the exception that it raises."""
    try:
        return await reply
    except Exception as error:
        return error


async def run_async(steps: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """Run the generator as steps.run_steps() does, but await `perform`.

    A cancellation is thrown into the generator, as any other exception is.
    """
    try:
        step = next(steps)
        while True:
            try:
                step_result = await perform(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(step_result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()
