"""MultiLock: several locks at once, without a deadlock and without half of them.

AsyncMultiLock (tasks.py), which awaits where this one blocks, has its order, the rest of the wait
and what becomes of the leases from here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakMethod

from ..errors import LockLost, Release
from ..lease import BaseLease, Lease
from ..lock import Hold, Lock
from ..support import now

#: Which outcome counts where several were found, first to last.
WORST = Release.UNKNOWN, Release.EXPIRED, Release.RELEASED, Release.HANDED_OVER


K = TypeVar("K", bound=Any)  # a Lock, or AsyncRedisLock
E = TypeVar("E", bound=BaseLease)


def in_order(locks: Iterable[K]) -> tuple[K, ...]:
    """The locks by their names, each of them once; those of a lock of several, instead of it.

    Raises ValueError for none, for two different ones of one name, and for one key of two names:
    whoever holds the first would wait for the second in vain.
    """
    named: dict[str, K] = {}
    names: dict[object, str] = {}
    for lock in itertools.chain.from_iterable(getattr(each, "locks", (each,)) for each in locks):
        if _what(named.setdefault(lock.name, lock)) != _what(lock):
            raise ValueError(f"two different locks are called {lock.name!r}: give one another name")
        other = names.setdefault(_what(lock)[1:], lock.name) if hasattr(lock, "keys") else lock.name
        if other != lock.name:
            raise ValueError(f"{other!r} and {lock.name!r} have one key: give only one of them")
    if not named:
        raise ValueError("no locks are given: name what is to be locked")
    return tuple(named[name] for name in sorted(named))


def name_of(several: Iterable[Any]) -> str:
    """The one name of all of them."""
    return ", ".join(each.name for each in several)


def in_turn(locks: Iterable[K], wait: float | None) -> Iterator[tuple[K, float | None]]:
    """Each of the locks with the seconds that are left of the wait when its turn comes."""
    end = math.inf if wait is None else now() + wait
    left = wait
    for lock in locks:
        yield lock, left
        left = None if wait is None else max(0.0, end - now())


def to_release(leases: Sequence[E]) -> list[E]:
    """The leases that were not released yet, the last one first."""
    return [each for each in reversed(leases) if each.outcome in (None, Release.UNKNOWN)]


class Together(BaseLease, Generic[E]):
    """What `MultiLease` and `AsyncMultiLease` have in common.

    Raises LockLost when one of the leases is lost already.
    """

    def __init__(self, leases: Iterable[E], *, started: float, **more: Any) -> None:
        self.leases = tuple(leases)
        super().__init__(
            name=name_of(self.leases),
            token=" ".join(lease.token for lease in self.leases),
            deadline=0.0,
            waited_seconds=now() - started,
            **more,
        )
        for lease in self.leases:
            lease.lost_with = WeakMethod(self.mark_lost)
        for lease in self.leases:
            if lease.lost:
                raise LockLost("lost while others were waited for; start again", name=lease.name)

    @property
    def fences(self) -> Mapping[str, int | None]:
        """The fence of each lock by its name."""
        return {lease.name: lease.fence for lease in self.leases}

    @property
    def deadline(self) -> float:
        """Of the lease that ends first."""
        return min(lease.deadline for lease in self.leases)

    @deadline.setter
    def deadline(self, _: float) -> None:
        """The leases have deadlines of their own."""

    def check(self) -> None:
        """Raise LockLost when one of the leases can no longer be trusted. No round trip."""
        super().check()
        for lease in self.leases:
            lease.check()

    def worst(self) -> Release:
        """What the releases found together."""
        found = {lease.outcome for lease in self.leases}
        return next(outcome for outcome in WORST if outcome in found)


def _what(lock: object) -> tuple[object, ...]:
    """Equal for two objects that are the same lock, if their names are."""
    client = getattr(lock, "client", None)
    pool = getattr(client, "connection_pool", client)
    return type(lock), pool, (getattr(lock, "keys", None) or [None])[0]


class MultiLock(Lock):
    """Holds all of the given locks or none.

    They are acquired in the order of their names, so that two that want the same locks cannot hold
    one each and wait for the other's, whatever order they name them in. `wait` is for all of them
    together. A lock given twice is acquired once.

        cart = MultiLock(RedisLock(client, f"product:{id}", ttl=10) for id in (42, 7))
        with cart.hold(wait=5) as lease:
            lease.fences["product:42"]

    Raises ValueError for no locks, and for two different ones of one name.
    """

    def __init__(self, locks: Iterable[Lock]) -> None:
        self.locks = in_order(locks)
        super().__init__(name_of(self.locks), ttl=min(lock.ttl for lock in self.locks))

    def acquire(self, wait: float | None) -> MultiLease:
        """Acquire all, queueing for at most `wait` seconds altogether (None: as long as it takes).

        Raises what the lock raises that was not acquired (LockTimeout, LockBackendError), and
        LockLost when one was lost while another was waited for. In each case, and on any other
        exception, those that were acquired are released.
        """
        started = now()
        leases: list[Lease] = []
        try:
            for lock, left in in_turn(self.locks, wait):
                leases.append(lock.acquire(left))
            return MultiLease(leases, started=started)
        except BaseException as error:
            for failed in _release(leases):
                error.add_note(f"{self.name}: and a release failed: {failed!r}")
            raise

    def hold(self, wait: float | None) -> Hold[MultiLease]:
        """See Lock.hold()."""
        return Hold(self, wait)


class MultiLease(Together[Lease], Lease):
    """The leases of several locks. If one is lost, all are; the others are held until the release.

    leases  one of each lock, in the order of their names
    """

    def __init__(self, leases: Sequence[Lease], *, started: float) -> None:
        super().__init__(leases, started=started, release=self._release_all)

    def extend(self, seconds: float) -> None:
        """Each of the leases, see Lease.extend()."""
        for lease in self.leases:
            lease.extend(seconds)

    def owned(self) -> bool:
        """Whether the server says that all of the locks are ours. One round trip for each."""
        return all(lease.owned() for lease in self.leases)

    def _release_all(self, _: Lease) -> Release:
        failed = _release(self.leases)
        if failed:
            raise failed[0]
        return self.worst()


def _release(leases: Sequence[Lease]) -> list[Exception]:
    """Release them, the last one first, each whatever the others do. Returns what they raised."""
    failed = []
    for lease in to_release(leases):
        try:
            lease.release()
        except Exception as error:
            failed.append(error)
        except BaseException:  # Ctrl-C: the others are released before it goes on
            _release(leases)
            raise
    return failed
