"""AsyncRedisLock: RedisLock for redis.asyncio, with the same scripts and the same decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..acquisition import Acquisition, Ask, Grant, Listen, Step
from ..errors import emit
from ..handover import Keeping
from ..lease import new_token
from ..lock import Options, is_cluster
from ..protocol import ANY_HOLDER, Call, Inspection, WireError
from ..renewals import Renewal
from ..support import now
from .connections import Reply, run_async
from .lease import AsyncLease, AsyncLock
from .shared import AsyncShared, shared_of

if TYPE_CHECKING:
    from .shared import AsyncParts

#: In a mailbox: see whether it is time to ask.
LOOK = object()


class AsyncRedisLock(Options[AsyncLease], AsyncLock[AsyncLease]):
    """Mutual exclusion by name on one Redis for asyncio, with a fence for the storage to check.

    client    a redis.asyncio.Redis or RedisCluster (or valkey-py's), which says where the server is
              and, by its socket_timeout, how long a silent one is waited for
    on_lost   called with the lease and a `LossReason` when it is lost, soon, by the event loop

    The rest as in `RedisLock`, with which it shares names: one excludes the other.

        lock = AsyncRedisLock(client, "product:42", ttl=10)
        async with lock.hold(wait=5) as lease:
            ...  # UPDATE ... SET fence = lease.fence WHERE ... AND fence < lease.fence

    Bound to no event loop: one object may serve loop after loop. In each, all locks of one client
    share a connection for commands, one for wake-ups and one for renewals, and the tasks that read
    them; they end with the loop. Raises ValueError and TypeError for arguments that cannot work.
    """

    def _connect(self, client: Any) -> None:
        self._make: Callable[[Any], Any] = AsyncShared
        if is_cluster(client, awaited=True):
            from .cluster import AsyncCluster

            self._make = AsyncCluster

    async def _here(self) -> AsyncParts:
        """This loop's shared connections. Does no I/O."""
        parts: AsyncParts = (await shared_of(self.client, self._make)).parts(self.keys[0])
        return parts

    async def acquire(self, wait: float | None) -> AsyncLease:
        """Take the lock, queueing for at most `wait` seconds (None: as long as it takes).

        Raises LockTimeout when the wait is over, LockBackendError when the server is not reached
        or refuses. After these, after a cancellation and after any other exception, nothing is left
        in the queue, and the lock is given back if it was granted meanwhile: the command that does
        this is sent before the exception is raised, and repeated if it gets no answer.
        """
        shared = await self._here()
        acquisition = Acquisition(self, shared.wakeups.waiters, wait)
        running = Running(shared, acquisition)
        lease = None
        try:
            granted = await run_async(acquisition.obtain(), running.do)
            if granted is not None:
                token = acquisition.token.decode()
                lease = self._lease(shared, token, granted, acquisition.started)
        except BaseException as error:
            running.undo()
            if isinstance(error, WireError):
                raise self._unknown(error) from error.__cause__
            raise
        finally:
            waited = now() - acquisition.started
            emit(self.metrics, "waited", self.name, waited, lease is not None)
        if lease is None:
            raise self._not_free(wait)
        return lease

    async def locked(self) -> bool:
        """Whether anybody holds the lock now. Raises LockBackendError."""
        return (await self.inspect()).owner is not None

    async def inspect(self) -> Inspection:
        """Who holds the lock and who waits for it. Changes nothing. Raises LockBackendError."""
        return Inspection.parse(await self._call(self.command("inspect")))

    async def force_release(self) -> bool:
        """Take the lock away from its holder and give it to the next waiter. For operators.

        See `RedisLock.force_release`. Raises LockBackendError.
        """
        return bool(await self._call(self.release_of(ANY_HOLDER)) == 1)

    async def adopt(self, handed: str) -> AsyncLease:
        """Go on with a lease that another process handed over, with or without asyncio.

        See `RedisLock.adopt`. Cancelled, the lock is given back if it was adopted.
        """
        token, started = new_token(), now()
        shared = await self._here()
        keeping = self._keeping(shared)
        try:
            granted = await keeping.do(keeping.adopt(handed, token, unique=True))
        except asyncio.CancelledError:  # at once: the loop may end before anything else is sent
            shared.connections.post(self.release_of(token), within=None)
            raise
        return self._lease(shared, token, granted, started)

    def _keeping(self, shared: AsyncParts) -> Keeping:
        call = partial(shared.connections.call, within=None)
        return Keeping(self, shared.watchdog, lambda steps: run_async(steps, call))

    def _lease(self, shared: AsyncParts, token: str, granted: Grant, started: float) -> AsyncLease:
        fence, deadline = granted

        def send_release() -> Reply:
            shared.watchdog.remove((self.keys[0], token))
            reply: Reply = shared.connections.post(self.release_of(token), within=None)
            reply.add_done_callback(released)
            return reply

        def released(reply: Reply) -> None:
            if reply.exception() is not None:
                shared.watchdog.abandon(token, self)

        lease = AsyncLease(
            name=self.name,
            token=token,
            fence=fence,
            deadline=deadline,
            waited_seconds=now() - started,
            send_release=send_release,
            found=self._found,
            keeping=lambda: self._keeping(shared),
            on_lost=self._lost if self.on_lost or self.metrics else None,
        )
        shared.watchdog.add(Renewal(lease, self))
        return lease

    async def _call(self, command: Call) -> Any:
        shared = await self._here()
        try:
            return await shared.connections.call(command, within=None)
        except WireError as error:
            raise self._unknown(error) from error.__cause__


class Running:
    """An acquire in progress."""

    def __init__(self, shared: AsyncParts, acquisition: Acquisition) -> None:
        self._shared = shared
        self._acquisition = acquisition
        self._line: object = None  # the connection on which the last command was sent

    async def do(self, step: Step) -> Any:
        """One step of Acquisition.obtain(). Raises WireError."""
        shared, acquisition = self._shared, self._acquisition
        if isinstance(step, Ask):
            self._line = shared.connections.line
            return await shared.connections.call(step.command, within=step.within)
        if isinstance(step, Listen):
            await shared.wakeups.listen(step.until)
            return None
        # Not asyncio.timeout, which cancels the task: before Python 3.11.3 one that cleans up after
        # a cancellation would be cancelled again.
        while (left := acquisition.asks_at() - now()) > 0:  # which may change meanwhile
            timer = asyncio.get_running_loop().call_later(left, step.mailbox.put_nowait, LOOK)
            try:
                found = await step.mailbox.get()
            finally:
                timer.cancel()
            if found is not LOOK:
                return found
        return None

    def undo(self) -> None:
        """Leave the queue, and give the lock back if it is, or becomes, ours nevertheless.

        Does not suspend, so that no second cancellation comes between: what undoes it is sent at
        once, behind what it undoes.
        """
        step = self._acquisition.undo()
        if step is None:
            return
        connections = self._shared.connections
        in_order = self._line is connections.line
        posted = connections.post(step.command, within=step.within)

        def undone(reply: asyncio.Future[Any]) -> None:
            self._acquisition.undone(reply.exception() or reply.result(), in_order=in_order)

        posted.add_done_callback(undone)
