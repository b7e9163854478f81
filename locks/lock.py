"""What every lock here offers, and the two checks that all of them make of their arguments."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import LockTimeout
from .lease import Lease, Release

#: Shortest lease that makes sense: a server's expiry is counted in milliseconds.
SHORTEST_TTL = 0.001


class Lock(ABC):
    """A named lock. Holds no state of an acquisition, so one object may serve all threads.

    name  what is locked; two locks of the same kind and name exclude each other
    ttl   seconds that the lock survives a holder that stopped answering
    """

    def __init__(self, name: str, *, ttl: float) -> None:
        if not name:
            raise ValueError("a lock needs a name: say what it protects, for instance 'product:42'")
        if not (math.isfinite(ttl) and ttl >= SHORTEST_TTL):
            raise ValueError(f"ttl is {ttl!r}: give seconds, finite and at least {SHORTEST_TTL}")
        self.name = name
        self.ttl = ttl

    @abstractmethod
    def acquire(self, wait: float | None) -> Lease:
        """Take the lock, queueing for at most `wait` seconds (None: as long as it takes).

        Raises LockTimeout when the wait is over, LockBackendError when the server is silent.
        """

    def try_acquire(self) -> Lease | None:
        """Take the lock if it is free now; None if it is not."""
        try:
            return self.acquire(0.0)
        except LockTimeout:
            return None

    @contextmanager
    def hold(self, wait: float | None) -> Iterator[Lease]:
        """Hold the lock for the block, or as `@lock.hold(wait=5)` for every call of a function.

        Leaving it never hides the block's own exception. A lease that expired meanwhile is told
        by `lease.outcome` and a warning in the log, not by an exception: what the block did, a
        committed sale say, did happen. Call `lease.check()` in the block before a step that must
        not run without the lock. An exception that leaves the block after the lease was lost has
        a note that says so.
        """
        lease = self.acquire(wait)
        try:
            yield lease
        except BaseException as error:
            _leave(lease)
            if lease.loss is not None or lease.outcome is Release.EXPIRED:
                found = lease.loss or lease.outcome
                error.add_note(f"{self.name}: the lease was lost in this block: {found}")
            raise
        else:
            _leave(lease)


def _leave(lease: Lease) -> None:
    """Release, unless the block did, or has forked and this is the child."""
    if lease.outcome is None and not lease.foreign:
        lease.release()
