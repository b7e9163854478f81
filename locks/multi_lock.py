"""MultiLock: acquire several locks, either all or none, without deadlocks.

For asyncio, ASYNCIO.md shows how to acquire several locks in one order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakMethod

from .clock import now
from .errors import LockLost, Release
from .lease import Lease
from .lock import HoldContext, Lock

#: The outcome of a MultiLease is the worst outcome of its leases.
OUTCOMES_WORST_FIRST = Release.UNKNOWN, Release.EXPIRED, Release.RELEASED, Release.HANDED_OVER


def flatten_and_sort(locks: Iterable[Lock]) -> tuple[Lock, ...]:
    """Return the locks in the order of their names, without duplicates.

    A MultiLock is replaced by its locks. Two objects are the same lock if they have the same class,
    client, name and key.

    Raises:
        TypeError: An object is not a lock for threads. For example, it is an AsyncRedisLock.
        ValueError: `locks` is empty, or two different locks have the same name. Or two locks with
            different names have the same key, so no caller could hold both.
    """
    locks_by_name: dict[str, Lock] = {}
    names_by_key: dict[object, str] = {}
    single_locks = (getattr(lock, "locks", (lock,)) for lock in locks)
    for lock in itertools.chain.from_iterable(single_locks):
        if not isinstance(lock, Lock):
            raise TypeError(
                f"{type(lock).__name__} is not a lock for threads: "
                f"ASYNCIO.md shows how to acquire several locks of asyncio in one order"
            )
        namesake = locks_by_name.setdefault(lock.name, lock)
        if _get_identity(namesake) != _get_identity(lock):
            raise ValueError(f"two different locks have the name {lock.name!r}: rename one of them")
        redis_key = _get_redis_key(lock)
        if redis_key is None:
            continue
        name = names_by_key.setdefault((_get_pool(lock), redis_key), lock.name)
        if name != lock.name:
            raise ValueError(f"{name!r} and {lock.name!r} have the same key: use only one of them")
    if not locks_by_name:
        raise ValueError("MultiLock got no locks: pass at least one")
    return tuple(locks_by_name[name] for name in sorted(locks_by_name))


def join_names(locks_or_leases: Iterable[Any]) -> str:
    """Return the names of several locks or leases, separated by commas."""
    return ", ".join(lock_or_lease.name for lock_or_lease in locks_or_leases)


def iterate_with_time_left(
    locks: Iterable[Lock], wait: float | None
) -> Iterator[tuple[Lock, float | None]]:
    """Yield each lock with the seconds of `wait` that are left at that moment. None: no limit."""
    end = math.inf if wait is None else now() + wait
    seconds_left = wait
    for lock in locks:
        yield lock, seconds_left
        seconds_left = None if wait is None else max(0.0, end - now())


def _get_identity(lock: object) -> tuple[object, ...]:
    """Return the class, the client and the key of a lock, which identify it beside its name."""
    return type(lock), _get_pool(lock), _get_redis_key(lock)


def _get_pool(lock: object) -> object:
    """Return the connection pool of the lock's client, which identifies the client.

    Returns the client itself if it is that of a cluster, which has no such pool. Returns None if
    the lock has no client.
    """
    client = getattr(lock, "client", None)
    return getattr(client, "connection_pool", client)


def _get_redis_key(lock: object) -> bytes | None:
    """Return the key of the lock itself in Redis, or None for a lock without keys."""
    keys: tuple[bytes, ...] | None = getattr(lock, "keys", None)
    return keys[0] if keys else None


class MultiLock(Lock):
    """Several locks, of which a caller holds either all or none.

    They are acquired in the order of their names, so two callers that want the same two locks never
    hold one each and wait for each other. `wait` is the time for all of them together. A lock that
    is listed twice is acquired once.

        cart = MultiLock(RedisLock(client, f"product:{id}", ttl=10) for id in (42, 7))
        with cart.hold(wait=5) as lease:
            lease.fences["product:42"]

    Args:
        locks: The locks.

    Raises:
        TypeError: An object is not a lock for threads. For example, it is an AsyncRedisLock.
        ValueError: There is no lock, or two different locks have one name or one key.
    """

    def __init__(self, locks: Iterable[Lock]) -> None:
        self.locks = flatten_and_sort(locks)
        super().__init__(join_names(self.locks), ttl=min(lock.ttl for lock in self.locks))

    def acquire(self, wait: float | None) -> MultiLease:
        """Acquire all locks, or release those that were acquired and raise the exception.

        Args:
            wait: Seconds to wait at most for all locks together. None: no limit.

        Returns:
            The lease of all locks.

        Raises:
            ValueError: `wait` is negative or not a number.
            LockTimeout: A lock was not free within the wait.
            LockBackendError: The server of a lock did not answer, or refused the command.
            LockLost: One lock was lost during the wait for another.
        """
        started_at = now()
        leases: list[Lease] = []
        try:
            for lock, seconds_left in iterate_with_time_left(self.locks, wait):
                leases.append(lock.acquire(seconds_left))
            return MultiLease(leases, started_at=started_at)
        except BaseException as error:
            for release_error in _release_each(leases):
                error.add_note(f"{self.name}: a release also failed: {release_error!r}")
            raise

    def hold(self, wait: float | None) -> HoldContext[MultiLease]:
        """Hold all locks for the block, as Lock.hold() does."""
        return HoldContext(self, wait)


class MultiLease(Lease):
    """The leases of several locks.

    If one lease is lost, the MultiLease is lost. The remaining leases are held until its release.

    Args:
        leases: The lease of each lock, in the order of the locks' names.
        started_at: Time of our clock at which the first acquisition began.

    Attributes:
        leases: The lease of each lock, in the order of the locks' names.

    Raises:
        LockLost: One of the leases is lost already.
    """

    def __init__(self, leases: Sequence[Lease], *, started_at: float) -> None:
        self.leases = tuple(leases)
        super().__init__(
            name=join_names(self.leases),
            token=" ".join(lease.token for lease in self.leases),
            deadline=0.0,  # ignored: the deadline of a MultiLease is computed from its leases
            waited_seconds=now() - started_at,
            release=self._release_all,
        )
        for lease in self.leases:
            lease._mark_group_lost_ref = WeakMethod(self.mark_lost)
        for lease in self.leases:
            if lease.lost:
                raise LockLost("lost while waiting for other locks; start again", name=lease.name)

    @property
    def fences(self) -> Mapping[str, int | None]:
        """The fence of each lock by its name."""
        return {lease.name: lease.fence for lease in self.leases}

    @property
    def deadline(self) -> float:
        """The deadline of the lease that ends first."""
        return min(lease.deadline for lease in self.leases)

    @deadline.setter
    def deadline(self, _: float) -> None:
        """Ignore the deadline that BaseLease sets, because each of the leases has a deadline."""

    def check(self) -> None:
        """Raise an exception if one of the leases can no longer be trusted. Costs no round trip.

        Raises:
            LockLost: One of the leases was lost, or passed its deadline.
            LockNotHeld: One of the leases was released or handed over before, or belongs to another
                process.
        """
        super().check()
        for lease in self.leases:
            lease.check()

    def extend(self, seconds: float) -> None:
        """Extend each of the leases, as Lease.extend() does.

        After an exception, the leases before the failed one stay extended.

        Args:
            seconds: Seconds from now.

        Raises:
            Exception: The exception of the first Lease.extend() that failed.
        """
        for lease in self.leases:
            lease.extend(seconds)

    def owned(self) -> bool:
        """Ask the server whether all locks are ours, with at most one round trip for each."""
        return all(lease.owned() for lease in self.leases)

    def _release_all(self, _: Lease) -> Release:
        """Release each of the leases and return the worst outcome.

        If some releases fail, the others are still tried. Then the first exception is raised.
        """
        errors = _release_each(self.leases)
        if errors:
            raise errors[0]
        outcomes = {lease.outcome for lease in self.leases}
        return next(outcome for outcome in OUTCOMES_WORST_FIRST if outcome in outcomes)


def _release_each(leases: Sequence[Lease]) -> list[Exception]:
    """Release the leases that may still have their lock, the last one first.

    Returns:
        The exceptions that the releases raised.
    """
    errors = []
    for lease in reversed(leases):
        if lease.outcome not in (None, Release.UNKNOWN):
            continue
        try:
            lease.release()
        except Exception as error:
            errors.append(error)
        except BaseException:  # for example Ctrl-C: release the remaining leases before raising it
            _release_each(leases)  # ignores the leases that are already released
            raise
    return errors
