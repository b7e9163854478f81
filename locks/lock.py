"""What every lock here offers, and the arguments of RedisLock and AsyncRedisLock."""

from __future__ import annotations

import inspect
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from .errors import LockBackendError, LockTimeout, LossReason, Metrics, Release, emit
from .lease import BaseLease, Lease
from .protocol import FENCE_TTL, Arg, Call, WireError, keys_of, milliseconds, script

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L", bound=Lease, covariant=True)
B = TypeVar("B", bound=BaseLease)


def check_name_and_ttl(name: str, ttl: float) -> None:
    """Raises ValueError."""
    if not name:
        raise ValueError("a lock needs a name: say what it protects, for instance 'product:42'")
    if not (math.isfinite(ttl) and ttl >= 0.001):  # a server counts in milliseconds
        raise ValueError(f"ttl is {ttl!r}: give seconds, finite and at least 0.001")


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
        later = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
        for each in (function, getattr(function, "__call__", None)):  # noqa: B004
            if any(runs_later(each) for runs_later in later):
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
        finally:
            if lease.outcome is None and not lease.foreign:  # a signal handler raised just now
                lease.release()
        if error is not None:
            lease.add_note_to(error)


class Options(Generic[B]):
    """What RedisLock and AsyncRedisLock are given. See RedisLock for what it means.

    keys         see hand_over.lua
    renewed_for  seconds for which a lease is renewed, or inf

    Raises ValueError for arguments that cannot work.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        *,
        ttl: float,
        key: str | bytes | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        fence_ttl: float = FENCE_TTL,
        on_lost: Callable[[B, LossReason], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        check_name_and_ttl(name, ttl)
        if max_hold is not None and not max_hold >= ttl:
            raise ValueError(f"max_hold is {max_hold!r}: give seconds, at least the ttl of {ttl}")
        if not fence_ttl >= ttl or fence_ttl == math.inf:
            raise ValueError(f"fence_ttl is {fence_ttl!r}: give seconds, at least the ttl of {ttl}")
        self.client = client
        self.name = name
        self.ttl = ttl
        self.renew = renew
        self.max_hold = max_hold
        self.fence_ttl = fence_ttl
        self.on_lost = on_lost
        self.metrics = metrics
        self.renewed_for = (math.inf if max_hold is None else max_hold) if renew else 0.0
        self.keys = keys_of(name, key.encode() if isinstance(key, str) else key)
        if on_lost or metrics:
            from . import hooks  # noqa: F401  now, since an import can hang in a forked child
        self._connect(client)

    def _connect(self, client: Any) -> None:
        raise NotImplementedError

    def _lost(self, lease: B, reason: LossReason) -> None:
        emit(self.metrics, "lost", self.name, reason)
        if self.on_lost is not None:
            self.on_lost(lease, reason)

    def command(self, name: str, *args: Arg) -> Call:
        """The script of this name with the lock's keys and these arguments."""
        return script(name), self.keys, args

    def release_of(self, token: str | bytes) -> Call:
        """The command that releases the lock if this token has it, or leaves the queue."""
        return self.command("release", token, milliseconds(self.fence_ttl))

    def _found(self, lease: BaseLease, reply: Any) -> Release:
        """What a release found. `reply` of release.lua, or the exception in its place."""
        outcome = Release.UNKNOWN
        if isinstance(reply, Exception):
            again = "tried again until " if lease.unique else ""
            logger.warning("%s: not released yet, %sits ttl ends it: %s", self.name, again, reply)
        elif reply == 1:
            outcome = Release.RELEASED
        elif lease.outcome is not Release.UNKNOWN:
            outcome = Release.EXPIRED  # else it may have been the release before that freed it
        emit(self.metrics, "held", self.name, lease.held_seconds, outcome)
        return outcome

    def _unknown(self, error: WireError) -> LockBackendError:
        text = f"the server was not reached or refused, nothing is known about the lock: {error}"
        return LockBackendError(text, name=self.name)

    def _not_free(self, wait: float | None) -> LockTimeout:
        logger.debug("%s: not free within %s s", self.name, wait)
        return LockTimeout(name=self.name)


def is_cluster(client: Any, *, awaited: bool) -> bool:
    """Whether it is a cluster's client. Raises TypeError if it is none whose commands are awaited,
    or none whose commands block."""
    kind = getattr(getattr(client, "connection_pool", None), "connection_class", None)
    cluster = kind is None and hasattr(client, "nodes_manager")
    connect = getattr(kind, "connect", None)
    awaits = hasattr(client, "__await__") if cluster else inspect.iscoroutinefunction(connect)
    if awaits is not awaited or not (cluster or kind):
        lock, module = ("AsyncRedisLock", "redis.asyncio") if awaited else ("RedisLock", "redis")
        raise TypeError(
            f"client is {type(client).__module__}.{type(client).__name__}: {lock} needs a "
            f"{module}.Redis or a {module}.RedisCluster; AsyncRedisLock is for redis.asyncio"
        )
    return cluster
