"""What can be done with a lease beside releasing it: extend, verify, hand over, adopt.

    web     lease = lock.acquire(5)
    web     text = lease.hand_over(within=60)     renewed here for the last time
    worker  lease = lock.adopt(text)              another token from here on; renewed there

The token changes with the process, in one step of the server. So only one of two can adopt a lease,
as where a queue delivers a task twice, and no renewal or release that is still on its way from the
first process touches the lease of the second.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from .clock import now
from .command import WireError
from .errors import LockBackendError, LockLost
from .lease import Lease, LossReason, Release
from .metrics import Metrics, emit
from .protocol import ADD, LEAST, SET, Inspection, drift, renew_args
from .renewals import Renewals


class Keeper:
    """The leases of one lock.

    call  runs a script by its name for the lock, with these arguments; raises WireError
    """

    def __init__(
        self,
        call: Callable[..., Any],
        renewals: Renewals,
        *,
        ttl: float,
        metrics: Metrics | None,
    ) -> None:
        self._call = call
        self._metrics = metrics
        self._renewals = renewals
        self._ttl = ttl

    def extend(self, lease: Lease, seconds: float) -> None:
        """See Lease.extend()."""
        try:
            reply = self.prolong(lease, lease.token, seconds)
        except WireError as error:
            raise LockBackendError(f"not extended: {error}", name=lease.name) from error.__cause__
        if reply != 1:
            if self._renewals.remove(lease.token):
                lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)
            raise LockLost(name=lease.name)

    def prolong(
        self, lease: Lease | None, token: str | bytes, seconds: float, how: bytes = LEAST
    ) -> int:
        """Reply of renew.lua for this token; moves the deadline of its lease, if that is known.

        Raises WireError, and ValueError for a time that cannot work.
        """
        if not 0 < seconds < float("inf"):
            raise ValueError(f"{seconds!r} are no seconds to prolong a lease by; give more than 0")
        sent = now()
        gained = seconds - drift(seconds)
        deadline = 0.0
        if lease is not None:
            deadline = lease.deadline + gained if how == ADD else sent + gained
            if how == SET:  # before the server knows: it may be sooner
                lease.deadline = min(lease.deadline, deadline)
        reply = int(self._call("renew", *renew_args(token, seconds, how)))
        if lease is not None and reply == 1:
            lease.deadline = max(lease.deadline, deadline)
        return reply

    def owned(self, lease: Lease) -> bool:
        """See Lease.owned()."""
        try:
            return Inspection.parse(self._call("inspect")).owner == lease.token
        except WireError as error:
            raise LockBackendError(f"not verified: {error}", name=lease.name) from error.__cause__

    def hand_over(self, lease: Lease, within: float | None) -> str:
        """See Lease.hand_over()."""
        self.extend(lease, self._ttl if within is None else within)
        self._renewals.remove(lease.token)
        emit(self._metrics, "held", lease.name, lease.held_seconds, Release.HANDED_OVER)
        return json.dumps({"name": lease.name, "token": lease.token, "fence": lease.fence})


class Handed(NamedTuple):
    """What a process was given: the lease of another one."""

    name: str
    token: str
    fence: int | None

    @classmethod
    def parse(cls, text: str, name: str) -> Handed:
        """Raises ValueError unless it is what hand_over() returned for a lock of this name."""
        try:
            handed = cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{text!r} is not what lease.hand_over() returned") from error
        if handed.name != name:
            raise ValueError(
                f"this is a lease of {handed.name!r}, and the lock is {name!r}: "
                f"adopt it with a lock of its own name and key"
            )
        return handed
