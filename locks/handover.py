"""The operations on a lease besides its release: extend, verify, hand over, adopt.

    web     lease = lock.acquire(5)
    web     text = lease.hand_over(within=60)     renewed here for the last time
    worker  lease = lock.adopt(text)              another token from here on; renewed there

The token changes with the process, in one step of the server. So a lease is adopted once, even if a
queue delivers a task twice, and no renewal or release that is still on its way from the first
process touches the lease of the second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from .clock import now
from .errors import LockBackendError, LockLost, LossReason, Release, emit
from .lease import BaseLease
from .sans_io.acquisition import Grant
from .sans_io.options import Options
from .sans_io.protocol import (
    ADD,
    ANY_HOLDER,
    LEAST,
    SET,
    Call,
    Inspection,
    WireError,
    drift,
    renew_args,
)
from .sans_io.renewals import Renewals

T = TypeVar("T")
#: Commands. The reply to each is sent in, or a WireError thrown.
Steps: TypeAlias = Generator[Call, Any, T]


class LeaseCommands:
    """The commands for the leases of one lock, and the evaluation of their replies. No I/O.

    Attributes:
        do: Does the steps, and returns their result or an awaitable of it.
    """

    def __init__(
        self, lock: Options[Any], renewals: Renewals, do: Callable[[Steps[Any]], Any]
    ) -> None:
        self.do = do
        self._lock = lock
        self._renewals = renewals

    def extend(self, lease: BaseLease, seconds: float, how: bytes = LEAST) -> Steps[None]:
        """See Lease.extend()."""
        try:
            reply = yield from self.prolong(lease, lease.token, seconds, how)
        except WireError as error:
            raise LockBackendError(f"not extended: {error}", name=lease.name) from error.__cause__
        if reply != 1:
            if self._renewals.remove((self._lock.keys[0], lease.token)):
                lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)
            raise LockLost(name=lease.name)

    def prolong(
        self, lease: BaseLease | None, token: str | bytes, seconds: float, how: bytes
    ) -> Steps[int]:
        """Return the steps that run renew.lua for a token, and move the deadline of its lease.

        Args:
            lease: The lease of the token, if there is one in this process.
            token: The token.
            seconds: Seconds from now on, or to add.
            how: LEAST, ADD or SET.

        Raises:
            WireError: The server did not answer, or refused.
            ValueError: `seconds` is not a positive, finite number.
        """
        if not 0 < seconds < float("inf"):
            raise ValueError(
                f"{seconds!r} cannot prolong a lease: give a positive number of seconds"
            )
        sent = now()
        gained = seconds - drift(seconds)
        deadline = 0.0
        if lease is not None:
            deadline = lease.deadline + gained if how == ADD else sent + gained
            if how == SET:  # before the server knows: it may be sooner, or later than a renewal
                self._renewals.shorten((self._lock.keys[0], lease.token), seconds)
                lease.move_deadline_back(deadline)
        args = renew_args(token, seconds, self._lock.fence_ttl, how)
        reply = int((yield self._lock.command("renew", *args)))
        if lease is not None and reply == 1:
            lease.move_deadline_forward(deadline)
        return reply

    def owned(self, lease: BaseLease) -> Steps[bool]:
        """See Lease.owned()."""
        try:
            return Inspection.parse((yield self._lock.command("inspect"))).owner == lease.token
        except WireError as error:
            raise LockBackendError(f"not verified: {error}", name=lease.name) from error.__cause__

    def hand_over(self, lease: BaseLease, within: float | None) -> Steps[str]:
        """See Lease.hand_over()."""
        held = self._lock.keys[0], lease.token
        yield from self.extend(lease, self._lock.ttl if within is None else within, SET)
        self._renewals.remove(held)
        lease.mark_handed_over()
        emit(self._lock.metrics, "held", lease.name, lease.held_seconds, Release.HANDED_OVER)
        return json.dumps({"name": lease.name, "token": lease.token, "fence": lease.fence})

    def adopt(self, text: str, token: str, *, unique: bool) -> Steps[Grant]:
        """Return the steps that give the lease `token`: see RedisLock.adopt().

        Args:
            text: The text of the lease that was handed over.
            token: The new token.
            unique: Whether no other acquisition uses the token. Otherwise it cannot be cleaned up
                after a lost reply.

        Returns:
            The steps. Their result is the fence and the deadline.
        """
        if token == ANY_HOLDER.decode():
            raise ValueError(f"{token!r} cannot be a token: its release would release any holder")
        old_token, fence = self._parse_handover(text)
        sent = now()
        ttl = self._lock.ttl
        try:
            args = renew_args(old_token, ttl, self._lock.fence_ttl, SET, heir=token)
            reply = yield self._lock.command("renew", *args)
        except BaseException as error:  # it may be ours: do not leave it locked for a ttl
            if unique:
                self._renewals.abandon(token, self._lock)
            if isinstance(error, WireError):
                raise self._lock._unknown(error) from error.__cause__
            raise
        if reply != 1:
            raise LockLost("the lease was adopted before, or is over", name=self._lock.name)
        return fence, sent + ttl - drift(ttl)

    def _parse_handover(self, text: str) -> tuple[str, int | None]:
        """Return the token and the fence of another process's lease.

        Raises ValueError unless hand_over() returned the text for a lock of this name.
        """
        try:
            handed = json.loads(text)
            name, token, fence = handed["name"], handed["token"], handed["fence"]
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{text[:200]!r} is not what lease.hand_over() returned") from error
        if name != self._lock.name:
            raise ValueError(
                f"this is a lease of {name!r}, and the lock is {self._lock.name!r}: "
                f"adopt it with a lock of that name and key"
            )
        return token, fence
