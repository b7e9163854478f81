"""One acquisition of a lock: its token, its fence, how long it can be trusted, and its release."""

from __future__ import annotations

import logging
import math
import os
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import LockLost, LockNotHeld, LossReason, Release
from .support import lazily, now

if TYPE_CHECKING:
    from .handover import Keeping

logger = logging.getLogger(__name__)


def new_token() -> str:
    """A value that no other acquisition has: 128 random bits behind the process's id."""
    return f"{os.getpid()}-{secrets.token_hex(16)}"


class BaseLease:
    """One acquisition, without the release: what `Lease` and `AsyncLease` have in common.

    token     names this acquisition, and no other one ever made
    fence     strictly rising integer for the storage to check, or None where the lock has none
    waited_seconds  from asking for the lock to having it
    deadline  second of our clock (support.now) from which the lease can no longer be trusted;
              renewing moves it
    loss      how it was lost (`LossReason`), None until that is known
    outcome   what the release found (`Release`), None while the lease is held
    keeping   makes what asks the server for more than the release; its file is loaded late
    unique    whether nobody else uses the token: else a release that got no answer is not repeated
    """

    def __init__(
        self,
        *,
        name: str,
        token: str,
        deadline: float,
        fence: int | None = None,
        waited_seconds: float = 0.0,
        keeping: Callable[[], Keeping] | None = None,
        unique: bool = True,
    ) -> None:
        self._keeping = keeping
        self.unique = unique
        self.name = name
        self.token = token
        self.fence = fence
        self.waited_seconds = waited_seconds
        self.deadline = deadline
        self.loss: LossReason | None = None
        self.outcome: Release | None = None
        #: Returns who is to be marked lost as well, or None: a weak reference, of MultiLease's.
        self.lost_with: Callable[[], Callable[[LossReason], None] | None] = lambda: None
        self._losing = threading.Lock()
        self._shortened = 0.0
        self._pid = os.getpid()
        self._acquired = now()
        self._held: float | None = None

    @property
    def lost(self) -> bool:
        """Whether the lease can no longer be trusted although it was not released."""
        if self.loss is not None:
            return True
        return self.outcome is None and now() >= self.deadline

    @property
    def held_seconds(self) -> float:
        """How long the lease was held, or has been held so far."""
        return now() - self._acquired if self._held is None else self._held

    @property
    def foreign(self) -> bool:
        """Whether the lease was acquired by another process, from which this one was forked."""
        return os.getpid() != self._pid

    def remaining(self) -> float:
        """Seconds for which the lease can still be trusted; 0 when it cannot.

        Read from the clock of this machine, not from the server: right even in a process that was
        paused, and on a machine that was suspended.
        """
        if self.outcome is not None or self.loss is not None:
            return 0.0
        return max(0.0, self.deadline - now())

    def check(self) -> None:
        """Raise LockLost when the lease can no longer be trusted. Costs no round trip.

        Raises LockNotHeld when the lease was released before or belongs to another process.
        """
        self._check_usable(None, advice="; acquire a new one")
        if self.remaining() <= 0.0:
            self.mark_lost(LossReason.EXPIRED)
            raise LockLost(name=self.name)

    def _asked_of(self) -> Keeping:
        """Raises LockNotHeld, or LockLost, if it makes no sense to ask the server for more."""
        self._check_usable(None, advice="; acquire a new one")
        if self.loss is not None:
            raise LockLost(name=self.name)
        if self._keeping is None:
            raise NotImplementedError(f"{self.name}: only the lease of a RedisLock can do this")
        return self._keeping()

    def lasts_until(self, deadline: float, asked: float = math.inf) -> None:
        """Move the deadline, but never back: a renewal may cross an extension.

        asked  when; before the lease was shortened, the answer is too old
        """
        with self._losing:
            if asked > self._shortened:
                self.deadline = max(self.deadline, deadline)

    def may_end_at(self, deadline: float) -> None:
        """Move the deadline, but never forth: the lease is being shortened, or may have been."""
        with self._losing:
            self.deadline = min(self.deadline, deadline)
            self._shortened = now()

    def handed_over(self) -> None:
        """The lease is another process's from here on."""
        self._held = self.held_seconds
        self.outcome = Release.HANDED_OVER

    def mark_lost(self, reason: LossReason) -> None:
        """Mark the lease lost, log it, and call those who asked to be called.

        Idempotent: only the first call counts.
        """
        with self._losing:
            if self.loss is not None:
                return
            self.loss = reason
        logger.warning(
            "%s: lease lost after %.3f s: %s", self.name, self.held_seconds, reason.value
        )
        self._announce(reason)
        if (also := self.lost_with()) is not None:
            also(reason)

    def add_note_to(self, error: BaseException) -> None:
        """Add a note to an exception that leaves the lock's block: the lease was lost in it."""
        if self.loss is not None or self.outcome is Release.EXPIRED:
            found = self.loss or self.outcome
            error.add_note(f"{self.name}: the lease was lost in this block: {found}")

    def _announce(self, reason: LossReason) -> None:
        raise NotImplementedError

    def _check_usable(self, *usable: Release | None, advice: str) -> None:
        """Raise LockNotHeld for another process's lease, or an outcome that is none of these."""
        found = "acquired in another process; acquire one here"
        if not self.foreign:
            if self.outcome in usable:
                return
            end = "handed over" if self.outcome is Release.HANDED_OVER else "released"
            found = end + advice
        raise LockNotHeld(f"the lease was {found}", name=self.name)

    def _begin_release(self) -> None:
        self._check_usable(None, Release.UNKNOWN, advice=" before; release it once")
        if self._held is None:
            self._held = now() - self._acquired

    def _end_release(self, outcome: Release) -> Release:
        self.outcome = outcome
        if outcome is not Release.RELEASED:
            logger.warning("%s: release after %.3f s: %s", self.name, self._held, outcome.value)
        return outcome


class Lease(BaseLease):
    """One acquisition. Belongs to no thread; whoever has it may check or release it.

    See `BaseLease` for what it knows.
    """

    def __init__(
        self,
        *,
        release: Callable[[Lease], Release],
        on_lost: Callable[[Lease, LossReason], None] | None = None,
        **known: Any,
    ) -> None:
        super().__init__(**known)
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
        keeping = self._asked_of()
        keeping.do(keeping.extend(self, seconds))

    def owned(self) -> bool:
        """Whether the server says that the lock is ours, at this moment. check() asks nobody.

        Raises LockBackendError.
        """
        keeping = self._asked_of()
        return bool(keeping.do(keeping.owned(self)))

    def hand_over(self, within: float | None = None) -> str:
        """Give the lease to another process, which passes the returned text to `lock.adopt()`.

        From here on the lease cannot be used in this process, and leaving its block releases
        nothing. It ends unless it is adopted within so many seconds (None: the lock's ttl). Raises
        LockLost, LockBackendError: then it is still held here.
        """
        keeping = self._asked_of()
        return str(keeping.do(keeping.hand_over(self, within)))

    def _announce(self, reason: LossReason) -> None:
        """Set `lost_event`, and call on_lost in another thread."""
        self.lost_event.set()
        if self._on_lost is not None:
            from .hooks import callbacks

            callbacks.call(self._on_lost, self, reason)
