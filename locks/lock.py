"""The methods that every lock for threads has, and the context manager of its block."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from types import TracebackType
from typing import Any, TypeVar, cast

from .errors import LockTimeout
from .lease import Lease
from .sans_io.options import check_name_and_ttl

F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L", bound=Lease, covariant=True)


class Lock(ABC):
    """A named lock. All threads may share one object, because the leases have all the state.

    Attributes:
        name: What is locked. Locks of one class with the same name on the same server exclude each
            other, unless a RedisLock has another `key`.
        ttl: Seconds that the lock survives a holder that stopped answering.
    """

    def __init__(self, name: str, *, ttl: float) -> None:
        check_name_and_ttl(name, ttl)
        self.name = name
        self.ttl = ttl

    @abstractmethod
    def acquire(self, wait: float | None) -> Lease:
        """Acquire the lock.

        Args:
            wait: Seconds to wait at most. 0: try once. None: no limit.

        Returns:
            The lease.

        Raises:
            ValueError: `wait` is negative or not a number.
            LockTimeout: The lock was not free within the wait.
            LockBackendError: The server did not answer, or refused the command.
        """

    def try_acquire(self) -> Lease | None:
        """Acquire the lock if it is free now.

        Returns:
            The lease, or None if the lock is taken.

        Raises:
            LockBackendError: The server did not answer, or refused the command.
        """
        try:
            return self.acquire(0.0)
        except LockTimeout:
            return None

    def hold(self, wait: float | None) -> HoldContext[Lease]:
        """Hold the lock for a `with` block. As a decorator, hold it for each call of a function.

        If both the block and the release fail, the exception of the block is raised. If the lease
        expired in the block, `lease.outcome` and a warning in the log say so. No exception is
        raised, because the work of the block, such as a committed sale, is done. Call
        `lease.check()` in the block before a step that must not run without the lock. If the lease
        was lost, an exception that leaves the block gets a note about the loss.

        Args:
            wait: Seconds to wait at most. 0: try once. None: no limit.

        Returns:
            A context manager for one block. Entering it raises what acquire() raises.
        """
        return HoldContext(self, wait)


class HoldContext(AbstractContextManager[L], ContextDecorator):
    """The context manager and decorator that Lock.hold() returns."""

    def __init__(self, lock: Lock, wait: float | None) -> None:
        self._lock = lock
        self._wait = wait
        self._lease: L | None = None

    def _recreate_cm(self) -> HoldContext[L]:
        """Return a new context for ContextDecorator: each call has its own lease."""
        return HoldContext(self._lock, self._wait)

    def __call__(self, function: F) -> F:
        """Decorate a function, which holds the lock during each of its calls.

        Raises:
            TypeError: The function is a coroutine function or a generator, whose body runs after
                its call has returned.
        """
        # `function` may also be an object whose class has a method `__call__` of these kinds.
        for callee in (function, getattr(function, "__call__", None)):  # noqa: B004
            if (
                inspect.iscoroutinefunction(callee)
                or inspect.isgeneratorfunction(callee)
                or inspect.isasyncgenfunction(callee)
            ):
                raise TypeError(
                    f"{function!r} runs after its call has returned, when the lock would be free "
                    f"again; use `with lock.hold(...)` inside it"
                )
        return super().__call__(function)

    def __enter__(self) -> L:
        if self._lease is not None:
            raise RuntimeError(f"{self._lock.name}: call lock.hold() anew for each block")
        self._lease = cast(L, self._lock.acquire(self._wait))
        return self._lease

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease = self._lease
        self._lease = None
        assert lease is not None
        try:
            # The block may have released the lease. A forked child, to which the lease is
            # foreign, must not release it.
            if lease.outcome is None and not lease.foreign:
                lease.release()
        except Exception as release_error:
            if error is None:
                raise
            error.add_note(f"{lease.name}: the release also failed: {release_error!r}")
        finally:
            # Still held: a signal handler raised an exception before release() began. Try again.
            if lease.outcome is None and not lease.foreign:
                lease.release()
        if error is not None:
            lease.add_note_to(error)
