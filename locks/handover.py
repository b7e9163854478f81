"""What can be done with a lease besides releasing it: extend, verify, hand over, adopt.

    web     lease = lock.acquire(5)
    web     text = lease.hand_over(within=60)     renewed here for the last time
    worker  lease = lock.adopt(text)              another token from here on; renewed there

The token changes with the process, in one step of the server. So only one of two can adopt a lease,
as where a queue delivers a task twice, and no renewal or release that is still on its way from the
first process touches the lease of the second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from .acquisition import Grant
from .clock import now
from .errors import LockBackendError, LockLost, LossReason, Release, emit
from .lease import BaseLease
from .options import Options
from .protocol import ADD, ANY_HOLDER, LEAST, SET, Call, Inspection, WireError, drift, renew_args
from .renewals import Renewals

T = TypeVar("T")
#: Commands. The reply to each is sent in, or a WireError thrown.
Steps: TypeAlias = Generator[Call, Any, T]


class LeaseCommands:
    """What is to be done with the leases of one lock, and what the replies mean. No I/O.

    do  does the steps: returns their result, or something to await for it
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
        """Reply of renew.lua for this token; moves the deadline of its lease, if that is known.

        Passes a WireError on. Raises ValueError for a time that cannot work.
        """
        if not 0 < seconds < float("inf"):
            raise ValueError(f"{seconds!r} cannot prolong a lease: give seconds, more than 0")
        sent = now()
        gained = seconds - drift(seconds)
        deadline = 0.0
        if lease is not None:
            deadline = lease.deadline + gained if how == ADD else sent + gained
            if how == SET:  # before the server knows: it may be sooner, or later than a renewal
                self._renewals.shorten((self._lock.keys[0], lease.token), seconds)
                lease.may_end_at(deadline)
        args = renew_args(token, seconds, self._lock.fence_ttl, how)
        reply = int((yield self._lock.command("renew", *args)))
        if lease is not None and reply == 1:
            lease.lasts_until(deadline)
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
        lease.handed_over()
        emit(self._lock.metrics, "held", lease.name, lease.held_seconds, Release.HANDED_OVER)
        return json.dumps({"name": lease.name, "token": lease.token, "fence": lease.fence})

    def adopt(self, text: str, token: str, *, unique: bool) -> Steps[Grant]:
        """Fence and deadline of the lease, which has this token now. See RedisLock.adopt().

        unique  whether nobody else uses the token: else it cannot be cleaned up after a lost reply
        """
        if token == ANY_HOLDER.decode():
            raise ValueError(f"{token!r} cannot be a token: its release would be anybody's")
        before, fence = self._handed(text)
        sent, ttl = now(), self._lock.ttl
        try:
            args = renew_args(before, ttl, self._lock.fence_ttl, SET, heir=token)
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

    def _handed(self, text: str) -> tuple[str, int | None]:
        """Token and fence of another process's lease.

        Raises ValueError unless it is what hand_over() returned for a lock of this name.
        """
        try:
            handed = json.loads(text)
            name, token, fence = handed["name"], handed["token"], handed["fence"]
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{text[:200]!r} is not what lease.hand_over() returned") from error
        if name != self._lock.name:
            raise ValueError(
                f"this is a lease of {name!r}, and the lock is {self._lock.name!r}: "
                f"adopt it with a lock of its own name and key"
            )
        return token, fence
