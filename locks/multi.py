"""MultiLock: several locks at once, without a deadlock and without half of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakMethod

from .clock import now
from .errors import LockLost
from .lease import Lease, Release
from .lock import Hold, Lock

#: Which outcome counts where several were found, first to last.
WORST = Release.UNKNOWN, Release.EXPIRED, Release.RELEASED


class MultiLock(Lock):
    """Holds all of the given locks or none.

    They are acquired in the order of their names, so that two that want the same locks cannot hold
    one each and wait for the other's, whatever order they name them in. `wait` is for all of them
    together. A lock that is given twice is acquired once.

        cart = MultiLock(RedisLock(client, f"product:{id}", ttl=10) for id in (42, 7))
        with cart.hold(wait=5) as lease:
            lease.fences["product:42"]

    Raises ValueError for no locks, and for two different ones of one name.
    """

    def __init__(self, locks: Iterable[Lock]) -> None:
        named: dict[str, Lock] = {}
        for lock in locks:
            known = named.setdefault(lock.name, lock)
            if _what(known) != _what(lock):
                raise ValueError(
                    f"two different locks are called {lock.name!r}: give one another name"
                )
        if not named:
            raise ValueError("no locks are given: name what is to be locked")
        self.locks = tuple(named[name] for name in sorted(named))
        super().__init__(", ".join(sorted(named)), ttl=min(lock.ttl for lock in self.locks))

    def acquire(self, wait: float | None) -> MultiLease:
        """Acquire all, queueing for at most `wait` seconds altogether (None: as long as it takes).

        Raises what the lock raises that was not acquired (LockTimeout, LockBackendError), and
        LockLost when one was lost while another was waited for. In each case, and on any other
        exception, those that were acquired are released.
        """
        started = now()
        end = math.inf if wait is None else started + wait
        leases: list[Lease] = []
        try:
            for lock in self.locks:
                leases.append(lock.acquire(None if wait is None else max(0.0, end - now())))
            lease = MultiLease(self.name, leases, waited_seconds=now() - started)
            lost = next((each for each in leases if each.lost), None)
            if lost is not None:
                raise LockLost("lost while others were waited for; start again", name=lost.name)
        except BaseException as error:
            for failed in _release(leases):
                error.add_note(f"{self.name}: and a release failed: {failed!r}")
            raise
        return lease

    def hold(self, wait: float | None) -> Hold[MultiLease]:
        """See Lock.hold()."""
        return Hold(self, wait)


class MultiLease(Lease):
    """The leases of several locks. Losing one is losing all; the others are held until the release.

    leases  one of each lock, in the order of their names
    """

    def __init__(self, name: str, leases: Sequence[Lease], *, waited_seconds: float) -> None:
        self.leases = tuple(leases)
        super().__init__(
            name=name,
            token=" ".join(lease.token for lease in leases),
            deadline=0.0,
            release=self._release_all,
            waited_seconds=waited_seconds,
        )
        for lease in leases:
            lease.lost_with = WeakMethod(self.mark_lost)
            if lease.loss is not None:  # before that
                self.mark_lost(lease.loss)

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
        return next(worst for worst in WORST if worst in {lease.outcome for lease in self.leases})


def _what(lock: Lock) -> tuple[object, ...]:
    """Equal for two objects that are the same lock, if their names are."""
    return type(lock), getattr(lock, "client", None), getattr(lock, "_keys", None)


def _release(leases: Sequence[Lease]) -> list[Exception]:
    """Release them, the last one first, each whatever the others do. Returns what they raised."""
    failed = []
    for lease in reversed(leases):
        if lease.outcome in (None, Release.UNKNOWN):
            try:
                lease.release()
            except Exception as error:
                failed.append(error)
    return failed
