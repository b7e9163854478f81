"""AsyncRedisLock: RedisLock for redis.asyncio, with the same scripts and the same decisions."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Protocol, TypeAlias, TypeVar

from ..acquisition import Acquisition, Ask, Listen, Step
from ..errors import LockTimeout, LossReason, Metrics, emit
from ..handover import Handed, Keeping, Steps
from ..lease import new_token
from ..lock import Options
from ..protocol import ANY_HOLDER, FENCE_TTL, Inspection, milliseconds
from ..scripts import Arg, WireError, script
from ..support import now, run_async
from .hold import AsyncHold
from .lease import AsyncLease
from .shared import AsyncParts, AsyncShared, PerLoop, shared_of

logger = logging.getLogger(__name__)


class AsyncSingleClient(Protocol):
    """redis.asyncio.Redis, or valkey.asyncio.Valkey."""

    @property
    def connection_pool(self) -> Any: ...


class AsyncClusterClient(Protocol):
    """redis.asyncio.RedisCluster, or valkey.asyncio.ValkeyCluster."""

    @property
    def nodes_manager(self) -> Any: ...


AsyncClient: TypeAlias = AsyncSingleClient | AsyncClusterClient


class AsyncRedisLock(Options):
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

    def __init__(
        self,
        client: AsyncClient,
        name: str,
        *,
        ttl: float,
        key: str | bytes | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        fence_ttl: float = FENCE_TTL,
        on_lost: Callable[[AsyncLease, LossReason], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(
            name,
            ttl=ttl,
            key=key,
            renew=renew,
            max_hold=max_hold,
            fence_ttl=fence_ttl,
            metrics=metrics,
        )
        self.client = client
        self.on_lost = on_lost
        self._make = self._maker(client)

    def _maker(self, client: Any) -> Callable[[Any], PerLoop]:
        kind = getattr(getattr(client, "connection_pool", None), "connection_class", None)
        if kind is not None and inspect.iscoroutinefunction(kind.connect):
            return AsyncShared
        if hasattr(client, "nodes_manager") and hasattr(client, "__await__"):
            from .cluster import AsyncCluster

            return AsyncCluster
        raise TypeError(
            f"client is {type(client).__module__}.{type(client).__name__}: AsyncRedisLock needs a "
            "redis.asyncio.Redis or a redis.asyncio.RedisCluster"
        )

    async def _here(self) -> AsyncParts:
        """What it shares with others in the running loop. Does not suspend."""
        return (await shared_of(self.client, self._make)).parts(self._keys[0])

    async def acquire(self, wait: float | None) -> AsyncLease:
        """Take the lock, queueing for at most `wait` seconds (None: as long as it takes).

        Raises LockTimeout when the wait is over, LockBackendError when the server is not reached
        or refuses. After these, after a cancellation and after any other exception, nothing is left
        in the queue, and the lock is given back if it was granted meanwhile: the command that does
        this is sent before the exception is raised, and repeated if it gets no answer.
        """
        started = now()
        token = new_token()
        shared = await self._here()
        acquisition = self._acquisition(
            shared.wakeups.waiters, shared.watchdog, token, wait=wait, started=started
        )
        running = Running(shared, acquisition)
        lease = None
        try:
            granted = await running.run(acquisition.obtain(once=wait == 0))
            if granted is not None:
                lease = self._lease(shared, token, *granted, now() - started)
        except WireError as error:
            running.undo()
            raise self._unknown(error) from error.__cause__
        except BaseException:
            running.undo()
            raise
        finally:
            emit(self.metrics, "waited", self.name, now() - started, lease is not None)
        if lease is None:
            logger.debug("%s: not free within %s s", self.name, wait)
            raise LockTimeout(name=self.name)
        return lease

    async def try_acquire(self) -> AsyncLease | None:
        """Take the lock if it is free now; None if it is not."""
        try:
            return await self.acquire(0.0)
        except LockTimeout:
            return None

    def hold(self, wait: float | None, *, cancel_on_loss: bool = False) -> AsyncHold[AsyncLease]:
        """Hold the lock for the block, or as `@lock.hold(wait=5)` for every call of a coroutine.

        As `Lock.hold`: leaving the block never replaces the block's own exception, and a lease that
        expired meanwhile shows in `lease.outcome` and in the log.

        cancel_on_loss  cancel the block at its next await when the lease is lost; it then ends with
                        LockLost. A cancellation from outside stays CancelledError.
        """
        return AsyncHold(self, wait, cancel_on_loss=cancel_on_loss)

    async def locked(self) -> bool:
        """Whether anybody holds the lock now. Raises LockBackendError."""
        return (await self.inspect()).owner is not None

    async def inspect(self) -> Inspection:
        """Who holds the lock and who waits for it. Changes nothing. Raises LockBackendError."""
        return Inspection.parse(await self._call("inspect"))

    async def force_release(self) -> bool:
        """Take the lock away from its holder and give it to the next waiter. For operators.

        See `RedisLock.force_release`. Raises LockBackendError.
        """
        return bool(await self._call("release", ANY_HOLDER, milliseconds(self.fence_ttl)) == 1)

    async def adopt(self, handed: str) -> AsyncLease:
        """Go on with a lease that another process handed over, with or without asyncio.

        See `RedisLock.adopt`. Cancelled, the lock is given back if it was adopted.
        """
        before, token, started = Handed.parse(handed, self.name), new_token(), now()
        shared = await self._here()
        keeper = self._keeper(shared)
        steps = keeper.keeping.adopt(before, token, unique=True)
        try:
            deadline = await keeper.run(steps)
        except WireError as error:
            raise self._unknown(error) from error.__cause__
        except asyncio.CancelledError:  # at once: the loop may end before anything else is sent
            args = self._release_args(token)
            shared.connections.post(script("release"), self._keys, args, within=None)
            raise
        return self._lease(shared, token, before.fence, deadline, now() - started)

    def _keeper(self, shared: AsyncParts) -> AsyncKeeper:
        async def call(name: str, *args: Arg) -> Any:
            return await shared.connections.call(script(name), self._keys, args, within=None)

        return AsyncKeeper(call, self._keeping(shared.watchdog))

    def _lease(
        self, shared: AsyncParts, token: str, fence: int | None, deadline: float, waited: float
    ) -> AsyncLease:
        def send_release() -> asyncio.Future[Any]:
            shared.watchdog.remove((self._keys[0], token))
            args = self._release_args(token)
            reply = shared.connections.post(script("release"), self._keys, args, within=None)
            reply.add_done_callback(released)
            return reply

        def released(reply: asyncio.Future[Any]) -> None:
            if isinstance(reply.exception(), WireError):
                shared.watchdog.abandon(token, self._keys, ttl=self.ttl, fence_ttl=self.fence_ttl)

        lease = AsyncLease(
            name=self.name,
            token=token,
            fence=fence,
            deadline=deadline,
            waited_seconds=waited,
            send_release=send_release,
            found=self._found,
            keeper=self._keeper(shared),
            on_lost=self._lost if self.on_lost or self.metrics else None,
        )
        shared.watchdog.add(self._renewal(lease))
        return lease

    def _lost(self, lease: AsyncLease, reason: LossReason) -> None:
        self._count_loss(reason)
        if self.on_lost is not None:
            self.on_lost(lease, reason)

    async def _call(self, name: str, *args: Arg) -> Any:
        shared = await self._here()
        try:
            return await shared.connections.call(script(name), self._keys, args, within=None)
        except WireError as error:
            raise self._unknown(error) from error.__cause__


T = TypeVar("T")


class Running:
    """An acquire in progress."""

    def __init__(self, shared: AsyncParts, acquisition: Acquisition) -> None:
        self._shared = shared
        self._acquisition = acquisition
        self._line: object = None  # the connection on which the last command was sent

    async def run(self, steps: Generator[Step, Any, T]) -> T:
        """Do the steps; their result. Raises WireError."""
        return await run_async(steps, self._do)

    async def _do(self, step: Step) -> Any:
        shared, acquisition = self._shared, self._acquisition
        if isinstance(step, Ask):
            name, args, within = step
            self._line = shared.connections.line
            return await shared.connections.call(
                script(name), acquisition.keys, args, within=within
            )
        if isinstance(step, Listen):
            await shared.wakeups.listen(step.until)
            return None
        return await step.mailbox.get(acquisition.asks_at)

    def undo(self) -> None:
        """Leave the queue, and give the lock back if it is, or becomes, ours nevertheless.

        Does not suspend, so that no second cancellation comes between: what undoes it is sent at
        once, behind what it undoes.
        """
        step = self._acquisition.undo()
        if step is None:
            return
        name, args, within = step
        connections = self._shared.connections
        in_order = self._line is connections.line
        posted = connections.post(script(name), self._acquisition.keys, args, within=within)

        def undone(reply: asyncio.Future[Any]) -> None:
            self._acquisition.undone(reply.exception() or reply.result(), in_order=in_order)

        posted.add_done_callback(undone)


class AsyncKeeper:
    """Does the steps of a Keeping.

    call  runs a script by its name for the lock, with these arguments; raises WireError
    """

    def __init__(self, call: Callable[..., Awaitable[Any]], keeping: Keeping) -> None:
        self._call = call
        self.keeping = keeping

    async def extend(self, lease: AsyncLease, seconds: float) -> None:
        await self.run(self.keeping.extend(lease, seconds))

    async def owned(self, lease: AsyncLease) -> bool:
        return await self.run(self.keeping.owned(lease))

    async def hand_over(self, lease: AsyncLease, within: float | None) -> str:
        return await self.run(self.keeping.hand_over(lease, within))

    async def run(self, steps: Steps[T]) -> T:
        """Do the steps; their result. A cancellation is thrown into them, too."""
        return await run_async(steps, lambda step: self._call(step[0], *step[1]))
