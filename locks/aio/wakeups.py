"""The task that wakes the waiters of one loop: one subscription for all of them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from ..clock import now
from ..command import Address, WireError, has_moved
from ..protocol import Wake, channel_for
from ..renewals import Renewals
from ..waiters import Waiters

logger = logging.getLogger(__name__)

#: Seconds without a message after which the connection is probed, and again until it is given up.
PROBE = 5.0


class Mailbox:
    """Of one waiter. It holds a wake-up, or None: ask again."""

    __slots__ = ("_future", "_wakes")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._wakes: list[Wake | None] = []

    def put(self, wake: Wake | None) -> None:
        self._wakes.append(wake)
        self._resume()

    async def get(self, asks_at: Callable[[], float]) -> Wake | None:
        """What was put, or None when it is time to ask: `asks_at` may change meanwhile."""
        loop = asyncio.get_running_loop()
        while not self._wakes:
            left = asks_at() - now()
            if left <= 0:
                return None
            self._future = loop.create_future()
            timer = loop.call_later(left, self._resume)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        return self._wakes.pop(0)

    def _resume(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class AsyncWakeUps:
    """The waiters of one loop on one server, and the task that wakes them."""

    def __init__(self, address: Address, renewals: Renewals, *, tag: bytes = b"") -> None:
        self._tag = tag  # of a slot in a cluster, for a channel that only its shard knows
        self.waiters = Waiters(Mailbox)
        self._address = address
        self._renewals = renewals
        self._task: asyncio.Task[None] | None = None
        self._subscribed: asyncio.Future[None] | None = None

    async def listen(self, until: float) -> None:
        """Return when the subscription is confirmed, or at the second `until` of our clock.

        Raises WireError when there can be none.
        """
        if self.waiters.listening:
            return
        if self._task is None or self._task.done() or self._subscribed is None:
            loop = asyncio.get_running_loop()
            self._subscribed = loop.create_future()
            self._task = loop.create_task(self._run(self._subscribed), name="locks.wakeups")
        subscribed, left = self._subscribed, max(0.0, until - now())
        await asyncio.wait(
            {subscribed, self._task},
            timeout=None if left == math.inf else left,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if subscribed.done() and not self.waiters.listening:
            subscribed.result()

    def resubscribe(self) -> None:
        """The server was demoted, or may have been: all waiters ask again, on a new connection."""
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """End the subscription."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self, subscribed: asyncio.Future[None]) -> None:
        waiters = self.waiters
        # A new channel each time: it has one subscription, ever, and so at most one server on
        # which it has a receiver.
        waiters.channel = channel_for(self._tag)
        connection: Any = None
        error: BaseException = ConnectionError("the subscription ended")
        try:
            async with asyncio.timeout(min(PROBE, self._address.timeout)):
                connection = self._where().connection(socket_timeout=None)
                await connection.connect()
                subscribe = "SSUBSCRIBE" if self._tag else "SUBSCRIBE"
                await connection.send_command(subscribe, waiters.channel)
                await connection.read_response(disable_decoding=True)
            waiters.listening = True
            subscribed.set_result(None)
            await self._read(connection)
        except Exception as caught:
            error = caught
            level = logging.WARNING if waiters.mailboxes else logging.INFO
            logger.log(level, "no wake-ups until the next waiter subscribes: %s", caught)
        finally:
            if not subscribed.done():
                subscribed.set_exception(WireError(error, sent=True))
                subscribed.exception()  # retrieved: whoever still waits for it raises it
            waiters.all_ask()
            if connection is not None:
                await connection.disconnect(nowait=True)

    def _where(self) -> Address:
        return self._address

    async def _read(self, connection: Any) -> None:
        probing = False
        while True:
            message = await connection.read_response(disable_decoding=True, timeout=PROBE)
            if message is None:
                if probing or has_moved(connection):
                    raise ConnectionError("the subscription is silent")
                if self._tag and not self.waiters.mailboxes:
                    return  # one of many slots, and nobody waits in it any more
                await connection.send_command("PING")
                probing = True
                continue
            probing = False
            if message[0] == b"sunsubscribe":
                raise ConnectionError("the slot has moved to another node")
            if message[0] in (b"message", b"smessage"):
                nobody = self.waiters.deliver(message[2])
                if nobody is not None:  # if it gave up; not a token that got the lock by asking
                    self._renewals.release_abandoned(nobody)
