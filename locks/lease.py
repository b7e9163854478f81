"""A lease on a lock: its token, its fence, its deadline and its release."""

from __future__ import annotations

import logging
import math
import os
import secrets
import threading
from collections.abc import Callable
from typing import Any, Protocol

from .clock import now
from .errors import LockLost, LockNotHeld, LossReason, Release
from .lazy import get_or_create

logger = logging.getLogger(__name__)


class LeaseOperations(Protocol):
    """The operations of a lease, besides its release, that send a command to the server.

    `handover.LeaseCommands` implements them. Each method returns steps, a generator of commands.
    `run` runs steps and returns their result or, for asyncio, an awaitable of their result.
    """

    run: Callable[[Any], Any]

    def extend(self, lease: BaseLease, seconds: float) -> Any:
        """Return the commands of Lease.extend() as a generator."""

    def owned(self, lease: BaseLease) -> Any:
        """Return the commands of Lease.owned() as a generator."""

    def hand_over(self, lease: BaseLease, within: float | None) -> Any:
        """Return the commands of Lease.hand_over() as a generator."""


def new_token() -> str:
    """Return a unique token: the process's id and 128 random bits."""
    return f"{os.getpid()}-{secrets.token_hex(16)}"


class BaseLease:
    """The common part of `Lease` and `AsyncLease`: all but the release.

    Attributes:
        name: The name of the lock.
        token: Unique to this acquisition.
        fence: An integer that only increases, for the storage to check. None: the lock has no
            fence.
        waited_seconds: Seconds from the start of the acquisition to the grant.
        deadline: Time of `clock.now`, in seconds, from which the lease can no longer be trusted. A
            renewal or an extension moves it.
        loss: Why the lease was lost; None until the loss is known.
        outcome: The outcome of the release; None before the release, even if the lease was lost.
        unique: True if the token is used for this acquisition only. A release that got no reply is
            repeated only then.
    """

    def __init__(
        self,
        *,
        name: str,
        token: str,
        deadline: float,
        fence: int | None = None,
        waited_seconds: float = 0.0,
        operations: Callable[[], LeaseOperations] | None = None,
        unique: bool = True,
    ) -> None:
        #: Returns the object that runs extend(), owned() and hand_over(). None: the lock is not a
        #: RedisLock, so the lease does not have these methods.
        self._operations = operations
        self.unique = unique
        self.name = name
        self.token = token
        self.fence = fence
        self.waited_seconds = waited_seconds
        self.deadline = deadline
        self.loss: LossReason | None = None
        self.outcome: Release | None = None
        #: A weak reference to the method mark_lost() of the MultiLease to which this lease belongs.
        #: It returns None if there is no such MultiLease.
        self._mark_group_lost_ref: Callable[[], Callable[[LossReason], None] | None] = lambda: None
        self._mutex = threading.RLock()  # reentrant: a signal handler may interrupt its holder
        self._first_loss = threading.Lock()  # taken once, by the first mark_lost()
        self._shortened_at = 0.0  # time of the last move_deadline_back()
        self._pid = os.getpid()
        self._acquired_at = now()
        self._final_held_seconds: float | None = None  # None: still held

    @property
    def lost(self) -> bool:
        """True if the loss is known, or if the deadline passed before the lease was released.

        If the loss is first noticed by the release, this stays False; `outcome` is then EXPIRED.
        """
        if self.loss is not None:
            return True
        return self.outcome is None and now() >= self.deadline

    @property
    def held_seconds(self) -> float:
        """Seconds for which the lease was held, or has been held so far."""
        if self._final_held_seconds is not None:
            return self._final_held_seconds
        return now() - self._acquired_at

    @property
    def foreign(self) -> bool:
        """True if this process was forked from the process that acquired the lease."""
        return os.getpid() != self._pid

    def remaining(self) -> float:
        """Return the seconds for which the lease can still be trusted, without a round trip.

        The result stays right if the process is paused or, on Linux, the machine is suspended,
        because `clock.now` goes on meanwhile.

        Returns:
            Seconds; 0 if the lease was released, handed over or lost, or is being released.
        """
        if self._has_release_begun() or self.loss is not None:
            return 0.0
        return max(0.0, self.deadline - now())

    def check(self) -> None:
        """Raise an exception if the lease can no longer be trusted. Costs no round trip.

        Raises:
            LockLost: The lease was lost, or passed its deadline.
            LockNotHeld: The lease was released or handed over before, or belongs to another
                process.
        """
        self._check_held()
        if self.remaining() <= 0.0:
            # This has no effect if the loss is already known.
            self.mark_lost(LossReason.EXPIRED)
            raise LockLost(name=self.name)

    def _get_operations(self) -> LeaseOperations:
        """Return the operations of this lease, after a check that it is held.

        Raises:
            LockNotHeld: The lease was released or handed over before, or belongs to another
                process.
            LockLost: The lease is known to be lost.
            NotImplementedError: The lock is not a RedisLock.
        """
        self._check_held()
        if self.loss is not None:
            raise LockLost(name=self.name)
        if self._operations is None:
            raise NotImplementedError(f"{self.name}: only the lease of a RedisLock has this method")
        return self._operations()

    def move_deadline_forward(self, deadline: float, sent_at: float = math.inf) -> None:
        """Move the deadline forward, never back.

        The new deadline is ignored if it is earlier than the current one, for example because the
        reply to a renewal arrives after the reply to an extension.

        Args:
            deadline: The new deadline, a time of `clock.now`.
            sent_at: Time at which the renewal was sent. The new deadline is ignored if
                move_deadline_back() was called later. Infinity (the default): never ignored for
                this reason.
        """
        with self._mutex:
            if sent_at > self._shortened_at:
                self.deadline = max(self.deadline, deadline)

    def move_deadline_back(self, deadline: float) -> None:
        """Make the deadline earlier, never later, because a command is about to shorten the lease.

        Args:
            deadline: The new deadline, a time of `clock.now`.
        """
        with self._mutex:
            self.deadline = min(self.deadline, deadline)
            self._shortened_at = now()

    def mark_handed_over(self) -> None:
        """Record that the lease was handed over to another process."""
        self._final_held_seconds = self.held_seconds
        self.outcome = Release.HANDED_OVER

    def mark_lost(self, reason: LossReason) -> None:
        """Mark the lease as lost, log the loss, set `lost_event` and call `on_lost`.

        A MultiLease to which the lease belongs is marked as lost, too. Later calls do nothing.

        Args:
            reason: Why the lease was lost.
        """
        if not self._first_loss.acquire(blocking=False):
            return
        self.loss = reason
        logger.warning(
            "%s: lease lost after %.3f s: %s", self.name, self.held_seconds, reason.value
        )
        self._announce_loss(reason)
        mark_group_lost = self._mark_group_lost_ref()
        if mark_group_lost is not None:
            mark_group_lost(reason)

    def add_note_to(self, error: BaseException) -> None:
        """Add a note about the loss of the lease to an exception, if the lease was lost.

        Args:
            error: The exception that left the block in which the lock was held.
        """
        if self.loss is not None or self.outcome is Release.EXPIRED:
            reason = self.loss or self.outcome
            error.add_note(f"{self.name}: the lease was lost in this block: {reason}")

    def _announce_loss(self, reason: LossReason) -> None:
        """Set `lost_event` and call `on_lost`. Each subclass does this in its own way."""
        raise NotImplementedError

    def _check_held(self) -> None:
        """Raise LockNotHeld if this process does not hold the lease, or has begun to release it."""
        self._check_process()
        if self._has_release_begun():
            message = f"the lease was {self._describe_end()}; acquire a new one"
            raise LockNotHeld(message, name=self.name)

    def _has_release_begun(self) -> bool:
        """Return whether the lease was released or handed over, or is being released.

        The outcome is set by the reply, but the server may have executed the release long before.
        So a lease whose release has begun is not trusted.
        """
        return self.outcome is not None or self._final_held_seconds is not None

    def _check_releasable(self) -> None:
        """Raise LockNotHeld if the lease belongs to another process or was already released.

        A lease whose release had the outcome UNKNOWN may be released again.
        """
        self._check_process()
        if self.outcome not in (None, Release.UNKNOWN):
            message = f"the lease was {self._describe_end()} before; release a lease only once"
            raise LockNotHeld(message, name=self.name)

    def _check_process(self) -> None:
        """Raise LockNotHeld if the lease belongs to another process."""
        if self.foreign:
            message = "the lease was acquired in another process; acquire one here"
            raise LockNotHeld(message, name=self.name)

    def _describe_end(self) -> str:
        """Return how the lease ended, for an error message."""
        return "handed over" if self.outcome is Release.HANDED_OVER else "released"

    def _begin_release(self) -> None:
        """Record how long the lease was held. Raises LockNotHeld as _check_releasable() does."""
        self._check_releasable()
        self._final_held_seconds = self.held_seconds  # a second release does not change it

    def _end_release(self, outcome: Release) -> Release:
        """Record and return the outcome of the release. Log it unless it is RELEASED."""
        self.outcome = outcome
        if outcome is not Release.RELEASED:
            logger.warning(
                "%s: the release, after a hold of %.3f s, ended as: %s",
                self.name,
                self.held_seconds,
                outcome.value,
            )
        return outcome


class Lease(BaseLease):
    """A lease that any thread of its process may check or release.

    `BaseLease` describes its attributes.
    """

    def __init__(
        self,
        *,
        release: Callable[[Lease], Release],
        on_lost: Callable[[Lease, LossReason], None] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(**attributes)
        self._release = release
        self._on_lost = on_lost
        self._release_mutex = threading.RLock()  # a signal handler may call release() again

    @property
    def lost_event(self) -> threading.Event:
        """An event that is set when the watchdog, check() or extend() notices the loss."""
        event = get_or_create(self, "_lost_event", threading.Event)
        if self.loss is not None:
            event.set()
        return event

    def release(self) -> Release:
        """Release the lock. After the outcome UNKNOWN it may be called again.

        Returns:
            The outcome.

        Raises:
            LockNotHeld: The lease was released or handed over before, or belongs to another
                process.
        """
        self._check_releasable()  # before the mutex, which a forked child may inherit locked
        with self._release_mutex:
            self._begin_release()
            try:
                outcome = self._release(self)
            except BaseException:
                self.outcome = Release.UNKNOWN
                raise
            return self._end_release(outcome)

    def extend(self, seconds: float) -> None:
        """Make the lease last for at least `seconds` from now, in one round trip.

        Use it before a step during which the lease cannot be renewed, and for a lock that is not
        renewed at all. It never shortens the lease.

        Args:
            seconds: Seconds from now.

        Raises:
            ValueError: `seconds` is not a positive, finite number.
            LockNotHeld: The lease was released or handed over before, or belongs to another
                process.
            LockLost: The lock is no longer ours.
            LockBackendError: The server did not answer, or refused the command. The lease keeps its
                deadline.
        """
        operations = self._get_operations()
        operations.run(operations.extend(self, seconds))

    def owned(self) -> bool:
        """Ask the server whether the lock is ours, in one round trip.

        Returns:
            Whether the lock is ours. If it is not, the lease is not marked as lost.

        Raises:
            LockNotHeld: The lease was released or handed over before, or belongs to another
                process.
            LockLost: The lease is known to be lost.
            LockBackendError: The server did not answer, or refused the command.
        """
        operations = self._get_operations()
        return bool(operations.run(operations.owned(self)))

    def hand_over(self, within: float | None = None) -> str:
        """Give the lease to another process, which passes the returned text to `lock.adopt()`.

        After this call the lease cannot be used in this process, and the end of its block releases
        nothing.

        After LockBackendError this process keeps the lease and renews it. But the server may still
        execute the command, and shorten the lease to `within` seconds. So each renewal is trusted
        for at most `within` seconds. If `within` is very short, the lease may be lost between two
        renewals.

        Args:
            within: Seconds after which the lease ends unless it is adopted. None: the lock's ttl.

        Returns:
            A text for `lock.adopt()`.

        Raises:
            ValueError: `within` is not a positive, finite number.
            LockNotHeld: The lease was released or handed over before, or belongs to another
                process.
            LockLost: The lock is no longer ours.
            LockBackendError: The server did not answer, or refused the command.
        """
        operations = self._get_operations()
        return str(operations.run(operations.hand_over(self, within)))

    def _announce_loss(self, reason: LossReason) -> None:
        """Set `lost_event`, and have another thread call on_lost."""
        self.lost_event.set()
        if self._on_lost is not None:
            from .hooks import callbacks

            callbacks.call(self._on_lost, self, reason)
