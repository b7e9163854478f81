"""AsyncMultiLock: MultiLock for asyncio, with the same order, the same wait and the same losses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from ..aio.lease import AsyncLease, AsyncLock
from ..aio.redis_lock import AsyncRedisLock
from ..errors import Release
from ..support import now
from .threads import Together, in_order, in_turn, name_of, to_release


class AsyncMultiLock(AsyncLock["AsyncMultiLease"]):
    """Holds all of the given locks or none, for asyncio. See `MultiLock`.

    They are acquired one after the other in the order of their names, as MultiLock does it: a task
    and a thread that want the same locks cannot block each other either.

        cart = AsyncMultiLock(AsyncRedisLock(client, f"product:{id}", ttl=10) for id in (42, 7))
        async with cart.hold(wait=5) as lease:
            lease.fences["product:42"]

    Raises ValueError for no locks, and for two different ones of one name.
    """

    def __init__(self, locks: Iterable[AsyncRedisLock]) -> None:
        self.locks = in_order(locks)
        self.name = name_of(self.locks)
        self.ttl = min(lock.ttl for lock in self.locks)

    async def acquire(self, wait: float | None) -> AsyncMultiLease:
        """Acquire all, queueing for at most `wait` seconds altogether (None: as long as it takes).

        Raises what `MultiLock.acquire` raises. In each case, and when it is cancelled, the releases
        of those that were acquired are sent before the exception is raised, and repeated if they
        get no answer.
        """
        started = now()
        leases: list[AsyncLease] = []
        try:
            for lock, left in in_turn(self.locks, wait):
                leases.append(await lock.acquire(left))
            return AsyncMultiLease(leases, started=started)
        except BaseException:
            for lease in to_release(leases):
                lease.give_back()
            raise


class AsyncMultiLease(Together[AsyncLease], AsyncLease):
    """The leases of several locks, as `MultiLease`. Belongs to its event loop."""

    def __init__(self, leases: Sequence[AsyncLease], *, started: float) -> None:
        super().__init__(
            leases,
            started=started,
            send_release=self._send_releases,
            found=lambda *_: self.worst(),
        )

    async def extend(self, seconds: float) -> None:
        """Each of the leases, see AsyncLease.extend()."""
        for lease in self.leases:
            await lease.extend(seconds)

    async def owned(self) -> bool:
        """Whether the server says that all of the locks are ours. One round trip for each."""
        return all([await lease.owned() for lease in self.leases])

    def _send_releases(self) -> asyncio.Future[list[Release]]:
        """All are sent before a reply is waited for: a cancellation leaves none of them held."""
        leases = to_release(self.leases)
        for lease in leases:
            lease.start_release()
        return asyncio.gather(*(lease.release() for lease in leases))
