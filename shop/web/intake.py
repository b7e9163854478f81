"""What has come in and is not parsed yet: a little in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Intake:
    """Makes at most `at_once` calls in each turn of the event loop; the others follow, in order.

    Where thousands of requests come in at once, to parse all of them in one turn takes seconds, in
    which no lease is renewed and no lock released.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = self._left = at_once
        self._calls: deque[Callable[[], None]] = deque()
        self._turns = False

    def call(self, what: Callable[[], None]) -> bool:
        """Make this call now, or in a later turn; whether it was now."""
        if not self._turns:
            self._turns = True
            asyncio.get_running_loop().call_soon(self._turn)
        if self._left:
            self._left -= 1
            what()
            return True
        self._calls.append(what)
        return False

    def _turn(self) -> None:
        self._left, self._turns = self._at_once, False
        if not self._calls:
            return
        self._turns = True
        asyncio.get_running_loop().call_soon(self._turn)
        while self._calls and self._left:
            self._left -= 1
            self._calls.popleft()()
        if self._calls:
            self._left = 0  # who comes now waits behind them
