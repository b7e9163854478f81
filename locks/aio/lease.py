"""One acquisition of an AsyncRedisLock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import LockNotHeld, LossReason, Release
from ..lease import BaseLease
from ..scripts import WireError
from ..support import lazily

if TYPE_CHECKING:
    from ..handover import Keeping

logger = logging.getLogger(__name__)


class AsyncLease(BaseLease):
    """One acquisition. Belongs to no task, but to its event loop. See `BaseLease` for the rest."""

    def __init__(
        self,
        *,
        send_release: Callable[[], asyncio.Future[Any]],
        found: Callable[[BaseLease, Any], Release],
        on_lost: Callable[[AsyncLease, LossReason], None] | None = None,
        **known: Any,
    ) -> None:
        super().__init__(**known)
        self._loop = asyncio.get_running_loop()
        self._send_release = send_release
        self._found = found
        self._on_lost = on_lost
        self._reply: asyncio.Future[Any] | None = None
        self._cancel_body: Callable[[], None] | None = None

    @property
    def lost_event(self) -> asyncio.Event:
        """Set when the loss is noticed: by the renewing task, or by check()."""
        event = lazily(self, "_lost_event", asyncio.Event)
        if self.loss is not None:
            event.set()
        return event

    async def release(self) -> Release:
        """Release the lock and return what was found; see `Release`.

        Raises LockNotHeld when the lease was released before, or belongs to another process or
        event loop. After UNKNOWN, and after it was cancelled, it may be called again: the command
        is on its way then, and the second call waits for the same reply.
        """
        sent = self.start_release()
        reply: Any
        try:
            reply = await asyncio.shield(sent)
        except WireError as error:
            reply, self._reply = error, None
        except BaseException as error:
            self.outcome = Release.UNKNOWN
            if isinstance(error, Exception):  # no reply will come: send another command
                self._reply = None
            raise
        outcome = self._end_release(self._found(self, reply))
        if outcome is Release.UNKNOWN:
            self._reply = None
        return outcome

    def start_release(self) -> asyncio.Future[Any]:
        """Send the release unless it is on its way; the reply to come. Does not suspend."""
        self._begin_release()
        self._check_loop()
        self._cancel_body = None
        if self._reply is None:
            self._reply = self._send_release()
        return self._reply

    def give_back(self) -> None:
        """Send the release, and leave what it finds to the log and the metrics."""

        def found(reply: asyncio.Future[Any]) -> None:
            if not reply.cancelled():
                self._end_release(self._found(self, reply.exception() or reply.result()))

        self.start_release().add_done_callback(found)

    async def extend(self, seconds: float) -> None:
        """Make the lease last for at least so many seconds from now. See `Lease.extend`."""
        keeping = self._asked_of()
        await keeping.do(keeping.extend(self, seconds))

    async def owned(self) -> bool:
        """Whether the server says that the lock is ours, at this moment. See `Lease.owned`."""
        keeping = self._asked_of()
        return bool(await keeping.do(keeping.owned(self)))

    async def hand_over(self, within: float | None = None) -> str:
        """Give the lease to another process, with or without asyncio. See `Lease.hand_over`.

        Cancelled, it is still held here.
        """
        keeping = self._asked_of()
        return str(await keeping.do(keeping.hand_over(self, within)))

    def _asked_of(self) -> Keeping:
        self._check_loop()
        return super()._asked_of()

    def _check_loop(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise LockNotHeld("the lease belongs to another event loop", name=self.name)

    def _announce(self, reason: LossReason) -> None:
        """Tell the loop; from another thread, soon, and not at all if the loop is closed."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._tell(reason)
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell, reason)

    def _tell(self, reason: LossReason) -> None:
        """Set `lost_event`, cancel the body if that was asked for, and call on_lost soon."""
        self.lost_event.set()
        if self._cancel_body is not None:
            self._cancel_body()
        if self._on_lost is not None:
            self._loop.call_soon(self._call_on_lost, self._on_lost, reason)

    def _call_on_lost(
        self, on_lost: Callable[[AsyncLease, LossReason], None], reason: LossReason
    ) -> None:
        try:
            on_lost(self, reason)
        except Exception:
            logger.exception("on_lost failed")
