"""Admits many tasks in batches, so that the event loop has time for everything else in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress


class Turnstile:
    """Lets `at_once` tasks pass; those behind them follow, in order, as many after each `between`.

    5,000 requests that come at once would otherwise keep the loop for seconds: nobody would read
    what Redis answers until all have asked, and each of them would take its silence for an outage.

    between  one round trip to whom those who pass ask; its errors are ignored
    """

    def __init__(self, at_once: int, between: Callable[[], Awaitable[object]]) -> None:
        self._at_once = self._room = at_once
        self._between = between
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._letting_in: asyncio.Task[None] | None = None
        self._clears = False

    async def enter(self) -> None:
        """Return when it is this task's turn."""
        loop = asyncio.get_running_loop()
        if self._room:
            self._room -= 1
            if not self._room:
                self._letting_in = loop.create_task(self._let_in())
            elif not self._clears:
                self._clears = True
                loop.call_soon(self._clear)
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _clear(self) -> None:
        """A turn of the loop is over in which there was room for all."""
        self._clears = False
        if self._letting_in is None:
            self._room = self._at_once

    async def _let_in(self) -> None:
        while True:
            with suppress(Exception):
                await self._between()
            left = self._at_once
            while self._waiting and left:
                turn = self._waiting.popleft()
                if not turn.done():  # else its client is gone
                    turn.set_result(None)
                    left -= 1
            if left:
                self._room, self._letting_in = left, None
                return
