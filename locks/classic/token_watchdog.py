"""FLAW: a holder that is paused for longer than the ttl loses the lock and is not told.

A2's cure for a holder slower than the ttl (A4 has it too): a daemon thread in the holder's process
renews the lock while the holder works.

    time 0.0   A takes the lock for 3 s and reads a stock of 1; its thread renews every second
    time 0.5   A's whole process is stopped: a full garbage collection, a virtual machine moved
    time 3.0   the key expires
    time 3.1   B takes the lock, reads a stock of 1 too and sells it
    time 9.0   A's process goes on where it was, and sells the same unit

The fault `pause` shows it, as do `restart` and `failover`; `slow` no longer does.

A2's own figures: a ttl of 30 s, the first renewal at 29 s, and from then on 20 s more every 20 s.
That leaves nothing over from the second renewal on: the lock ends in the very moment in which it
is renewed. Here a third of the ttl is the rule, as in A3; `A2_SCHEDULE` has the article's.

A2's thread sends EXPIRE without asking whose lock it is, and would renew the next holder's. It
also takes the thread's id for the value; two processes have threads of the same id, so that one
may release, or renew, what the other holds. The token here names one acquisition.
"""

from __future__ import annotations

from typing import NamedTuple

import redis

from ..lease import Lease, Release
from ..support import now
from .renewal import Renewal
from .scripts import script
from .token import TokenLock


class Schedule(NamedTuple):
    """When a lock is renewed, and for how long: each a part of its ttl."""

    first: float = 1 / 3
    every: float = 1 / 3
    extend: float = 1.0


A2_SCHEDULE = Schedule(first=29 / 30, every=20 / 30, extend=20 / 30)


class TokenWatchdogLock(TokenLock):
    """`TokenLock`, and a thread per lease that renews it."""

    def __init__(
        self,
        client: redis.Redis,
        name: str,
        *,
        ttl: float,
        retry: float = 0.1,
        schedule: Schedule = Schedule(),  # noqa: B008 immutable
    ) -> None:
        super().__init__(client, name, ttl=ttl, retry=retry)
        self.schedule = schedule
        self._renewals: dict[str, Renewal] = {}

    def acquire(self, wait: float | None) -> Lease:
        lease = super().acquire(wait)
        self._renewals[lease.token] = Renewal(
            lambda: self.renew(lease),
            first=self.ttl * self.schedule.first,
            every=self.ttl * self.schedule.every,
        )
        return lease

    def renew(self, lease: Lease) -> bool:
        """Renew the lock; False when it is no longer ours."""
        asked = now()
        extend = self.ttl * self.schedule.extend
        args: list[str | int] = [lease.token, max(1, round(extend * 1000))]
        if not script("compare_and_expire")(self.client, [self.key], args):
            return False
        lease.deadline = asked + extend
        return True

    def _release(self, lease: Lease) -> Release:
        if renewal := self._renewals.pop(lease.token, None):
            renewal.stop()
        return super()._release(lease)
