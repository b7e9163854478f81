"""AsyncRedisLock: RedisLock for redis.asyncio, with the same scripts and the same decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..clock import now
from ..errors import LockTimeout
from ..handover import LeaseCommands
from ..lease import new_token
from ..sans_io.acquisition import Acquisition, Grant, Listen, RunScript, Step
from ..sans_io.options import Options, is_cluster
from ..sans_io.protocol import ANY_HOLDER, Call, Inspection, WireError
from ..sans_io.renewals import Renewal
from .client_resources import AsyncClientResources, get_shared_resources
from .connections import Reply, run_async
from .lease import AsyncHoldContext, AsyncLease

if TYPE_CHECKING:
    from .client_resources import AsyncResources

#: A message in a mailbox that has the waiter check whether it is time to poll.
POLL_IF_DUE = object()


class AsyncRedisLock(Options[AsyncLease]):
    """Mutual exclusion by name on one Redis for asyncio, with a fence for the storage to check.

        lock = AsyncRedisLock(client, "product:42", ttl=10)
        async with lock.hold(wait=5) as lease:
            ...  # UPDATE ... SET fence = lease.fence WHERE ... AND fence < lease.fence

    It excludes each `RedisLock` with the same name, or the same `key`, on the same server. One
    object may serve one event loop after another. In each loop all locks of one client share a
    connection for commands, one for wake-ups and one for renewals; these end with the loop or the
    client.

    The other arguments, and the exceptions, are those of `RedisLock`.

    Args:
        client: A redis.asyncio.Redis or RedisCluster, or valkey-py's. It says where the server is
            and, by its socket_timeout, how long to wait for a silent one.
        on_lost: Called soon by the event loop with the lease and a `LossReason` when a lease is
            lost.
    """

    def _bind_client(self, client: Any) -> None:
        """Choose the resources for the client's kind. Raises TypeError for a client that blocks."""
        self._make_resources: Callable[[Any], Any] = AsyncClientResources
        if is_cluster(client, awaited=True):
            from .cluster import AsyncClusterResources

            self._make_resources = AsyncClusterResources

    async def _get_resources(self) -> AsyncResources:
        """Return the connections, waiters and watchdog of this loop for the lock's key. No I/O."""
        client_resources = await get_shared_resources(self.client, self._make_resources)
        resources: AsyncResources = client_resources.get_resources_of(self.keys[0])
        return resources

    async def acquire(self, wait: float | None) -> AsyncLease:
        """Acquire the lock, in turn with the other waiters.

        After an exception or a cancellation, the caller leaves the queue and gives back a lock that
        was granted meanwhile. The command for this is sent before the exception is raised. The
        command is repeated if it gets no answer.

        Args:
            wait: Seconds to wait at most. 0: try once. None: no limit.

        Returns:
            The lease. It is renewed until its release or `max_hold`, unless the lock has
            renew=False.

        Raises:
            ValueError: `wait` is negative or not a number.
            LockTimeout: The lock was not free within the wait.
            LockBackendError: The server did not answer, or refused the command.
        """
        resources = await self._get_resources()
        acquisition = Acquisition(self, resources.wakeups.waiters, wait)
        async_acquisition = AsyncAcquisition(resources, acquisition)
        lease = None
        try:
            grant = await run_async(acquisition.obtain(), async_acquisition.perform_step)
            if grant is not None:
                token = acquisition.token.decode()
                lease = self._start_lease(resources, token, grant, acquisition.started_at)
        except BaseException as error:
            async_acquisition.undo()
            if isinstance(error, WireError):
                raise self._make_backend_error(error) from error.__cause__
            raise
        finally:
            waited_seconds = now() - acquisition.started_at
            self.call_metrics_hook("waited", waited_seconds, lease is not None)
        if lease is None:
            raise self._make_timeout_error(wait)
        return lease

    async def try_acquire(self) -> AsyncLease | None:
        """Acquire the lock if it is free now.

        Returns:
            The lease, or None if the lock is taken.

        Raises:
            LockBackendError: The server did not answer, or refused the command.
        """
        try:
            return await self.acquire(0.0)
        except LockTimeout:
            return None

    def hold(self, wait: float | None, *, cancel_on_loss: bool = False) -> AsyncHoldContext:
        """Hold the lock for a block. As a decorator, hold it for each call of a coroutine function.

        If both the block and the release fail, the exception of the block is raised. If the lease
        expired in the block, `lease.outcome` and a warning in the log say so.

        Args:
            wait: Seconds to wait at most. 0: try once. None: no limit.
            cancel_on_loss: Whether to cancel the block at its next await when the lease is lost.
                The block then ends with LockLost. After a cancellation from outside it ends with
                CancelledError.

        Returns:
            An asynchronous context manager for one block.
        """
        return AsyncHoldContext(self.acquire, wait, cancel_on_loss=cancel_on_loss)

    async def locked(self) -> bool:
        """Return whether the lock has a holder now.

        Raises:
            LockBackendError: The server did not answer, or refused the command.
        """
        return (await self.inspect()).owner is not None

    async def inspect(self) -> Inspection:
        """Return the holder of the lock and its waiters, and change nothing.

        Raises:
            LockBackendError: The server did not answer, or refused the command.
        """
        return Inspection.parse(await self._call_server(self.build_call("inspect")))

    async def force_release(self) -> bool:
        """Take the lock away from its holder and give it to the next waiter. For operators.

        `RedisLock.force_release` describes the consequences.

        Returns:
            Whether the lock had a holder.

        Raises:
            LockBackendError: The server did not answer, or refused the command.
        """
        return bool(await self._call_server(self.build_release(ANY_HOLDER)) == 1)

    async def adopt(self, handed: str) -> AsyncLease:
        """Continue a lease that another process handed over, as `RedisLock.adopt` does.

        After a cancellation the lock is given back if it was adopted.

        Args:
            handed: The text that `hand_over()` of a Lease or an AsyncLease returned.

        Returns:
            The lease.
        """
        token = new_token()
        started_at = now()
        resources = await self._get_resources()
        commands = self._make_lease_commands(resources)
        try:
            grant = await commands.run(commands.adopt(handed, token, unique=True))
        except asyncio.CancelledError:
            # Release the lock now: the loop may end before the watchdog could release it.
            resources.connections.post(self.build_release(token), timeout=None)
            raise
        return self._start_lease(resources, token, grant, started_at)

    def _make_lease_commands(self, resources: AsyncResources) -> LeaseCommands:
        """Return the commands for the leases of this lock, which run in the loop of `resources`."""
        call = partial(resources.connections.call, timeout=None)
        return LeaseCommands(self, resources.watchdog, lambda steps: run_async(steps, call))

    def _start_lease(
        self, resources: AsyncResources, token: str, grant: Grant, started_at: float
    ) -> AsyncLease:
        """Return the lease of a grant, and have the watchdog renew it."""
        fence, deadline = grant

        def send_release() -> Reply:
            """Send the release and return the future of its reply."""
            resources.watchdog.remove((self.keys[0], token))
            reply: Reply = resources.connections.post(self.build_release(token), timeout=None)
            reply.add_done_callback(on_release_reply)
            return reply

        def on_release_reply(reply: Reply) -> None:
            """If the release failed, abandon the token: the watchdog then repeats the release."""
            if reply.exception() is not None:
                resources.watchdog.abandon(token, self)

        lease = AsyncLease(
            name=self.name,
            token=token,
            fence=fence,
            deadline=deadline,
            waited_seconds=now() - started_at,
            send_release=send_release,
            evaluate_release=self._evaluate_release,
            operations=lambda: self._make_lease_commands(resources),
            on_lost=self._report_loss if self._reports_losses else None,
        )
        resources.watchdog.add(Renewal(lease, self))
        return lease

    async def _call_server(self, command: Call) -> Any:
        """Run a script and return its reply. Raises LockBackendError instead of WireError."""
        resources = await self._get_resources()
        try:
            return await resources.connections.call(command, timeout=None)
        except WireError as error:
            raise self._make_backend_error(error) from error.__cause__


class AsyncAcquisition:
    """Performs the steps of an acquisition in an event loop."""

    def __init__(self, resources: AsyncResources, acquisition: Acquisition) -> None:
        self._resources = resources
        self._acquisition = acquisition
        self._last_connection: object = None  # the connection on which the last command was sent

    async def perform_step(self, step: Step) -> Any:
        """Perform one step of Acquisition.obtain() and return its result. Raises WireError."""
        resources = self._resources
        acquisition = self._acquisition
        if isinstance(step, RunScript):
            self._last_connection = resources.connections.current_connection
            return await resources.connections.call(step.command, timeout=step.timeout)
        if isinstance(step, Listen):
            await resources.wakeups.listen(step.until)
            return None
        # The step is a Sleep. asyncio.timeout() is not used: before Python 3.11.3 it could cancel a
        # task that was already cleaning up after a cancellation.
        while True:
            # Other waiters may change the poll time meanwhile.
            seconds_left = acquisition.compute_poll_time() - now()
            if seconds_left <= 0:
                return None
            timer = asyncio.get_running_loop().call_later(
                seconds_left, step.mailbox.put_nowait, POLL_IF_DUE
            )
            try:
                message = await step.mailbox.get()
            finally:
                timer.cancel()
            if message is not POLL_IF_DUE:
                return message

    def undo(self) -> None:
        """Leave the queue, and release the lock if it was granted or still will be.

        This is not a coroutine function, so that a second cancellation cannot interrupt it. The
        command is sent at once. If the earlier commands were sent on the same connection, the
        server executes this command after them.
        """
        step = self._acquisition.build_undo()
        if step is None:
            return
        connections = self._resources.connections
        in_order = self._last_connection is connections.current_connection
        undo_reply = connections.post(step.command, timeout=step.timeout)

        def on_reply(reply: Reply) -> None:
            self._acquisition.evaluate_undo(reply.exception() or reply.result(), in_order=in_order)

        undo_reply.add_done_callback(on_reply)
