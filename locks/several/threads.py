"""MultiLock: several locks at once, without a deadlock and without half of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import Release
from ..lease import Lease
from ..lock import Hold, Lock
from ..support import now
from .together import Together, in_order, in_turn, name_of, to_release


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
