"""Runs an acquire in a task, by awaiting each step."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar

from ..acquisition import Acquisition, Ask, Listen, Step
from ..scripts import script
from ..steps import run_async
from .shared import AsyncParts

T = TypeVar("T")


class Running:
    """An acquire in progress."""

    def __init__(self, shared: AsyncParts, acquisition: Acquisition) -> None:
        self._shared = shared
        self._acquisition = acquisition
        self._line: object = None  # the connection on which the last command was sent

    async def run(self, steps: Generator[Step, Any, T]) -> T:
        """Do the steps; their result. Raises WireError."""
        return await run_async(steps, self._do)

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
