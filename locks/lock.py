"""What every lock here offers, and the two checks that all of them make of their arguments."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from types import TracebackType
from typing import Any, TypeVar, cast

from .errors import LockTimeout
from .lease import Lease

F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L", bound=Lease, covariant=True)

#: Functions whose body runs after their call has returned.
RUN_LATER = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction

#: Shortest lease that makes sense: a server's expiry is counted in milliseconds.
SHORTEST_TTL = 0.001


def check_name_and_ttl(name: str, ttl: float) -> None:
    """Raises ValueError."""
    if not name:
        raise ValueError("a lock needs a name: say what it protects, for instance 'product:42'")
    if not (math.isfinite(ttl) and ttl >= SHORTEST_TTL):
        raise ValueError(f"ttl is {ttl!r}: give seconds, finite and at least {SHORTEST_TTL}")


class Lock(ABC):
    """A named lock. Holds no state of an acquisition, so one object may serve all threads.

    name  what is locked; two locks of the same kind and name exclude each other
    ttl   seconds that the lock survives a holder that stopped answering
    """

    def __init__(self, name: str, *, ttl: float) -> None:
        check_name_and_ttl(name, ttl)
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

    def hold(self, wait: float | None) -> Hold[Lease]:
        """Hold the lock for the block, or as `@lock.hold(wait=5)` for every call of a function.

        Leaving the block never replaces the block's own exception. A lease that expired meanwhile
        shows in `lease.outcome` and as a warning in the log, not as an exception: what the block
        did, a committed sale say, did happen. Call `lease.check()` in the block before a step that
        must not run without the lock. An exception that leaves the block after the lease was lost
        has a note that says so.
        """
        return Hold(self, wait)


class Hold(AbstractContextManager[L], ContextDecorator):
    """What Lock.hold returns: acquires on entering, releases on leaving."""

    def __init__(self, lock: Lock, wait: float | None) -> None:
        self._lock = lock
        self._wait = wait
        self._lease: L | None = None

    def _recreate_cm(self) -> Hold[L]:
        """For ContextDecorator: each call of a decorated function has a lease of its own."""
        return Hold(self._lock, self._wait)

    def __call__(self, function: F) -> F:
        """Decorate a function. Raises TypeError for one that runs after its call has returned."""
        for each in (function, getattr(function, "__call__", None)):  # noqa: B004
            if any(runs_later(each) for runs_later in RUN_LATER):
                raise TypeError(
                    f"{function!r} runs after its call has returned, when the lock would be free "
                    f"again; use `with lock.hold(...)` inside it"
                )
        return super().__call__(function)

    def __enter__(self) -> L:
        if self._lease is not None:
            raise RuntimeError(f"{self._lock.name}: call lock.hold() anew for each block")
        self._lease = lease = cast(L, self._lock.acquire(self._wait))
        return lease

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None
        try:
            if lease.outcome is None and not lease.foreign:  # not released, no forked child
                lease.release()
        except Exception as failed:
            if error is None:
                raise
            error.add_note(f"{lease.name}: and its release failed: {failed!r}")
        if error is not None:
            lease.add_note_to(error)
