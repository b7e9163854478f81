"""One acquisition of a lock: its token, its fence and how long it can be trusted."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable

from .clock import now
from .errors import LockLost, LockNotHeld
from .outcomes import LossReason, Release

logger = logging.getLogger(__name__)


#: Cached, since os.getpid() is a system call for each lease; refreshed after a fork.
_pid = os.getpid()


def _after_fork() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_after_fork)


def new_token() -> str:
    """A value that no other acquisition has: 128 random bits behind the process's id."""
    return f"{_pid}-{secrets.token_hex(16)}"


class BaseLease:
    """One acquisition, without the release: what `Lease` and `AsyncLease` have in common.

    token     names this acquisition, and no other one ever made
    fence     strictly rising integer for the storage to check, or None where the lock has none
    waited_seconds  from asking for the lock to having it
    deadline  second of our clock (clock.py) from which the lease can no longer be trusted;
              renewing moves it
    loss      how it was lost (`LossReason`), None until that is known
    outcome   what the release found (`Release`), None while the lease is held
    """

    def __init__(
        self,
        *,
        name: str,
        token: str,
        deadline: float,
        fence: int | None = None,
        waited_seconds: float = 0.0,
    ) -> None:
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
        self._pid = _pid
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
        return _pid != self._pid

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
        self._check_held()
        if self.remaining() <= 0.0:
            self.mark_lost(LossReason.EXPIRED)
            raise LockLost(name=self.name)

    def check_may_ask(self) -> None:
        """Raise LockNotHeld, or LockLost, if it makes no sense to ask the server for more."""
        self._check_held()
        if self.loss is not None:
            raise LockLost(name=self.name)

    def lasts_until(self, deadline: float) -> None:
        """Move the deadline, unless it is later anyway: a renewal may meet an extension."""
        with self._losing:
            self.deadline = max(self.deadline, deadline)

    def handed_over(self) -> None:
        """The lease is another process's from here on."""
        self._held = self.held_seconds
        self.outcome = Release.HANDED_OVER

    def mark_lost(self, reason: LossReason) -> None:
        """Mark the lease lost, log it, and say so to whoever asked.

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
        """Say in an exception that leaves the lock's block that the lease was lost in it."""
        if self.loss is not None or self.outcome is Release.EXPIRED:
            found = self.loss or self.outcome
            error.add_note(f"{self.name}: the lease was lost in this block: {found}")

    def _announce(self, reason: LossReason) -> None:
        raise NotImplementedError

    def _check_held(self) -> None:
        self._check_ours()
        if self.outcome is not None:
            raise LockNotHeld(f"the lease was {self._end()}; acquire a new one", name=self.name)

    def _end(self) -> str:
        return "handed over" if self.outcome is Release.HANDED_OVER else "released"

    def _check_ours(self) -> None:
        if self.foreign:
            raise LockNotHeld(
                "the lease was acquired in another process; acquire one here", name=self.name
            )

    def _begin_release(self) -> None:
        self._check_ours()
        if self.outcome not in (None, Release.UNKNOWN):
            raise LockNotHeld(
                f"the lease was {self._end()} before; release it once", name=self.name
            )
        if self._held is None:
            self._held = now() - self._acquired

    def _end_release(self, outcome: Release) -> Release:
        self.outcome = outcome
        if outcome is not Release.RELEASED:
            logger.warning("%s: release after %.3f s: %s", self.name, self._held, outcome.value)
        return outcome
