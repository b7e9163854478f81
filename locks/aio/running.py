"""Runs an acquire in a task, by awaiting each step."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar

from ..acquisition import Acquisition, Ask, Listen, Step
from ..scripts import script
from .shared import AsyncParts

T = TypeVar("T")


class Running:
    """An acquire on its way."""

    def __init__(self, shared: AsyncParts, acquisition: Acquisition) -> None:
        self._shared = shared
        self._acquisition = acquisition
        self._line: object = None  # that on which the last question went out

    async def run(self, steps: Generator[Step, Any, T]) -> T:
        """What the steps lead to. Raises WireError."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._do(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _do(self, step: Step) -> Any:
        shared, acquisition = self._shared, self._acquisition
        if isinstance(step, Ask):
            name, args, within = step
            self._line = shared.connections.line
            return await shared.connections.call(
                script(name), acquisition.keys, args, within=within
            )
        if isinstance(step, Listen):
            await shared.wakeups.listen(step.until)
            return None
        return await step.mailbox.get(acquisition.asks_at)

    def undo(self) -> None:
        """Leave the queue, and give the lock back if it is, or becomes, ours nevertheless.

        Does not suspend, so that no second cancellation comes between: what undoes it is sent at
        once, behind what it undoes.
        """
        step = self._acquisition.undo()
        if step is None:
            return
        name, args, within = step
        connections = self._shared.connections
        in_order = self._line is connections.line
        posted = connections.post(script(name), self._acquisition.keys, args, within=within)

        def undone(reply: asyncio.Future[Any]) -> None:
            self._acquisition.undone(reply.exception() or reply.result(), in_order=in_order)

        posted.add_done_callback(undone)
