"""How the tasks of one loop talk to one server: each command sent once, on one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ..connection import Address
from ..scripts import (
    Arg,
    Call,
    Script,
    WireError,
    eval_,
    evalsha,
    is_a,
    is_refusal_of_replica,
    packed,
)
from ..support import now
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
            line = self._line = Line(self._address)
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
        (reply,) = await self.call_all([(script, keys, args)], within=within, asking=asking)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def call_all(
        self, calls: Sequence[Call], *, within: float | None, asking: bool = False
    ) -> list[Any]:
        """Run several, all sent before the first reply is read.

        Returns replies, with the exception in the place of one that is an error.
        """
        line, until = self.line, now() + self._timeout(within)
        answers = await self._exchange(line, [evalsha(*call) for call in calls], asking, within)
        unknown = [place for place, answer in enumerate(answers) if _is_unknown_script(answer)]
        if unknown:
            commands = [eval_(*calls[place]) for place in unknown]
            again = await self._exchange(line, commands, asking, until - now())
            for place, answer in zip(unknown, again, strict=True):
                answers[place] = answer
        return answers

    async def _exchange(
        self, line: Line, commands: Sequence[bytes], asking: bool, within: float | None
    ) -> list[Any]:
        pending = [line.submit(command, asking) for command in commands]
        timer = self._expiry(line, pending, within)
        try:
            return [await self._answer(line, reply) for reply in pending]
        finally:
            timer.cancel()
            for reply in pending:
                reply.cancel()

    def post(
        self, script: Script, keys: Sequence[bytes], args: Sequence[Arg], *, within: float | None
    ) -> Reply:
        """Run the script, whether or not anybody awaits the returned future, which gets its reply.

        Sent before this returns, if the connection is open.
        """
        line = self.line
        done: Reply = asyncio.get_running_loop().create_future()
        pending = [line.submit(evalsha(script, keys, args))]
        timer = self._expiry(line, pending, within)

        def answered(reply: Reply) -> None:
            error = reply.exception()
            if _is_unknown_script(error) and reply is pending[0]:
                pending.append(line.submit(eval_(script, keys, args)))
                pending[1].add_done_callback(answered)
                return
            timer.cancel()
            if error is None:
                done.set_result(reply.result())
            else:
                self._note(line, error)
                done.set_exception(error)
                done.exception()  # retrieved: nobody need wait for it

        pending[0].add_done_callback(answered)
        return done

    async def run(self, *command: str | bytes, within: float) -> Any:
        """The reply to a command without a script. Raises WireError."""
        line = self.line
        reply = line.submit(packed(*command))
        timer = self._expiry(line, [reply], within)
        try:
            return await reply
        finally:
            timer.cancel()

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

    def _expiry(
        self, line: Line, pending: Sequence[Reply], within: float | None
    ) -> asyncio.TimerHandle:
        def expire() -> None:
            for reply in pending:
                line.expire(reply)

        return asyncio.get_running_loop().call_later(self._timeout(within), expire)

    def _timeout(self, within: float | None) -> float:
        return self._address.timeout if within is None else min(within, self._address.timeout)

    async def _answer(self, line: Line, reply: Reply) -> Any:
        try:
            return await reply
        except Exception as error:
            self._note(line, error)
            return error

    def _note(self, line: Line, error: BaseException) -> None:
        if isinstance(error, WireError) and is_refusal_of_replica(error.__cause__ or error):
            line.retire()
            self.demoted()


def _is_unknown_script(answer: Any) -> bool:
    return isinstance(answer, WireError) and is_a(answer.__cause__ or answer, "NoScriptError")
