"""One acquisition of a lock by a thread: checked, extended, handed over, released."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from .base_lease import BaseLease
from .callbacks import callbacks
from .lazily import lazily
from .outcomes import LossReason as LossReason
from .outcomes import Release as Release


class Keeper(Protocol):
    """What a lease asks of the lock that it came from. Methods raise LockLost, LockBackendError."""

    def extend(self, lease: Lease, seconds: float) -> None: ...
    def owned(self, lease: Lease) -> bool: ...
    def hand_over(self, lease: Lease, within: float | None) -> str: ...


class Lease(BaseLease):
    """One acquisition. Belongs to no thread; whoever has it may check or release it.

    See `BaseLease` for what it knows.
    """

    def __init__(
        self,
        *,
        release: Callable[[Lease], Release],
        on_lost: Callable[[Lease, LossReason], None] | None = None,
        keeper: Keeper | None = None,
        **known: Any,
    ) -> None:
        super().__init__(**known)
        self._keeper = keeper
        self._release = release
        self._on_lost = on_lost

    @property
    def lost_event(self) -> threading.Event:
        """Set when the loss is noticed: by the watchdog, or by check()."""
        event = lazily(self, "_lost_event", threading.Event)
        if self.loss is not None:
            event.set()
        return event

    def release(self) -> Release:
        """Release the lock and return what was found; see `Release`.

        Raises LockNotHeld when the lease was released before or belongs to another process.
        After UNKNOWN it may be called again.
        """
        self._begin_release()
        try:
            outcome = self._release(self)
        except BaseException:
            self.outcome = Release.UNKNOWN
            raise
        return self._end_release(outcome)

    def extend(self, seconds: float) -> None:
        """Make the lease last for at least so many seconds from now. One round trip.

        For a step in which nothing can be renewed, and for a lock that is not renewed at all. Never
        makes it shorter. Raises LockLost when the lock is no longer ours, LockBackendError when the
        server is not reached: then the lease is good until the deadline that it had.
        """
        self._asked_of().extend(self, seconds)

    def owned(self) -> bool:
        """Whether the server says that the lock is ours, at this moment. check() asks nobody.

        Raises LockBackendError.
        """
        return self._asked_of().owned(self)

    def hand_over(self, within: float | None = None) -> str:
        """Give the lease to another process, which passes the returned text to `lock.adopt()`.

        From here on the lease is of no use in this process, and leaving its block releases nothing.
        It ends unless it is adopted within so many seconds, the lock's ttl if None is given. Raises
        LockLost, LockBackendError: then it is still held here.
        """
        return self._asked_of().hand_over(self, within)

    def _asked_of(self) -> Keeper:
        self.check_may_ask()
        if self._keeper is None:
            raise NotImplementedError(f"{self.name}: only a RedisLock's lease can do this")
        return self._keeper

    def _announce(self, reason: LossReason) -> None:
        """Set `lost_event`, and call on_lost in another thread."""
        self.lost_event.set()
        if self._on_lost is not None:
            callbacks.call(self._on_lost, self, reason)
