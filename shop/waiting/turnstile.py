"""Lets a crowd in by and by, so that the event loop has time for everything else in between."""

from __future__ import annotations

import asyncio
from collections import deque


class Turnstile:
    """Lets `at_once` tasks pass in each turn of the event loop; the others follow, in order.

    5,000 requests that come at once would otherwise keep the loop for seconds: nobody would read
    what Redis answers until all have asked, and each of them would take its silence for an outage.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._passed = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Return when it is this task's turn."""
        loop = asyncio.get_running_loop()
        if self._passed == 0:
            loop.call_soon(self._next_turn)
        self._passed += 1
        if self._passed <= self._at_once:
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next_turn(self) -> None:
        self._passed = 0
        while self._waiting and self._passed < self._at_once:
            turn = self._waiting.popleft()
            if not turn.done():  # else its client is gone
                turn.set_result(None)
                self._passed += 1
        if self._waiting:
            self._passed = self._at_once  # who comes now waits behind them
        if self._passed:
            asyncio.get_running_loop().call_soon(self._next_turn)
