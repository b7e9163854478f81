"""One buyer's purchase in one rush: it waits at the barrier with nothing left to do but to send."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from loadtest.judge.intervals import Request
from loadtest.rush.crowd import Crowd
from loadtest.target.errors import TargetError, file_of

T = TypeVar("T")


class Over(BaseException):
    """The rush is over, and this purchase was not sent. No Exception: a target that catches those
    of its shop must not go on with it."""


class Purchase:
    """What a buyer asks, once and again, with the same key.

    first   its first request, None before it was sent
    waited  seconds that the first request has waited at the barrier
    """

    def __init__(self, crowd: Crowd, key: str) -> None:
        self.crowd = crowd
        self.key = key
        self.first: Request | None = None
        self.waited = 0.0
        self._sent: list[Request] = []
        self._sending = False

    def send(self, buy: Callable[[], T]) -> tuple[Request, T]:
        """Call this, which sends one request. Returns the record of it, and what `buy` returns.

        Raises Over, and TargetError if nothing was sent.
        """
        self._sent, self._sending = [], True
        try:
            returned = buy()
        finally:
            self._sending = False
        if not self._sent:
            raise TargetError(
                f"{file_of(self.crowd.target)}: buy() sent nothing with buyer.client, whose first "
                "request waits for the release. Send the purchase with it"
            )
        return self._sent[0], returned

    def ready(self) -> None:
        """A request is built. The first one waits at the barrier; now it is sent. Raises Over."""
        if not self._sending or self._sent:
            return
        if self.first is None:
            self.waited = self.crowd.arrive()
        if self.crowd.closed:
            raise Over
        request = self.crowd.ask(self.key)
        self._sent.append(request)
        self.first = self.first or request
