"""The resources that the locks of one redis.asyncio.RedisCluster share in one event loop.

../cluster/slots.py decides where a command goes and what an error reply means;
../cluster/nodes.py decides which node renews a lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from ..cluster.nodes import ClusterNodes, NodeRenewals, SlotCommands, SlotSubscription
from ..cluster.slots import LOOK_UP_SECONDS, Endpoint, RouteStep, Send, find_hash_tag, route
from ..sans_io.protocol import Call, WireError
from .connections import AsyncConnections, Reply, reply_or_exception, run_async
from .link import Link
from .loop_end import close_with_loop
from .wakeups import AsyncWakeUps
from .watchdog import AsyncWatchdog

T = TypeVar("T")


class AsyncClusterNodes(ClusterNodes):
    """The nodes of one cluster, and a subscription for each slot with waiters."""

    def __init__(self, client: Any) -> None:
        manager = client.nodes_manager
        cluster_nodes = list((manager.nodes_cache or manager.startup_nodes).values())
        # Each node of an asyncio client is also the pool of its connections.
        super().__init__(client, cluster_nodes, pool=cluster_nodes[0], on_connect=None)
        self.make_connections = AsyncConnections
        self.make_watchdog = AsyncNodeWatchdog
        self.make_wakeups = lambda key: AsyncSlotWakeUps(self.address, self, tag=find_hash_tag(key))
        self.tasks: set[asyncio.Task[Any]] = set()
        self._refresh_task: asyncio.Task[None] | None = None

    async def perform_steps(
        self, steps: Generator[RouteStep, Any, T], send: Callable[[Send], Awaitable[Any]]
    ) -> T:
        """Perform the steps of route() and return their result. Raises WireError."""

        async def perform_step(step: RouteStep) -> Any:
            """Perform one step and return its result."""
            if isinstance(step, Send):
                return await send(step)
            # The step is a Refresh.
            await asyncio.sleep(step.pause)
            return await self.refresh()

        return await run_async(steps, perform_step)

    async def refresh(self) -> None:
        """Look up which node has which slot, unless the last look-up was a moment ago.

        Callers that need it at the same time share one look-up.
        """
        if self.was_refreshed():
            return
        if self._refresh_task is None or self._refresh_task.done():
            self._refresh_task = self.start_task(run_async(self.look_up(), self._read_slots_from))
        # All callers share this task. wait() does not cancel it when a caller is cancelled.
        await asyncio.wait({self._refresh_task})

    def _read_slots_from(self, endpoint: Endpoint) -> Awaitable[Any]:
        """Return a node's reply to CLUSTER SLOTS, or the error in its place."""
        return reply_or_exception(
            self.get_node(endpoint).connections.run("CLUSTER", "SLOTS", timeout=LOOK_UP_SECONDS)
        )

    def start_task(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task, which aclose() cancels."""
        task = asyncio.get_running_loop().create_task(coroutine, name="locks.cluster")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def aclose(self) -> None:
        """Close all connections, and cancel all tasks."""
        for wakeups in list(self.wakeups.values()):
            await wakeups.aclose()
        for node in self.list_nodes():
            await node.watchdog.aclose()
            await node.connections.aclose()
        for task in list(self.tasks):
            task.cancel()


class AsyncNodeWatchdog(NodeRenewals, AsyncWatchdog):
    """The watchdog of the leases on one node of a cluster."""

    async def _run_batch(self, calls: Sequence[Call], timeout: float) -> list[Any]:
        """Send the calls as AsyncWatchdog._run_batch() does, then follow redirections by ASK."""
        replies = await super()._run_batch(calls, timeout)
        endpoint_by_call_index, should_refresh = self.find_redirections(calls, replies)
        for index, endpoint in endpoint_by_call_index.items():
            connections = self.nodes.get_node(endpoint).connections
            reply_future = connections.call(calls[index], timeout=timeout, asking=True)
            replies[index] = await reply_or_exception(reply_future)
        if should_refresh:
            await self.nodes.refresh()
        return replies


class AsyncSlotWakeUps(SlotSubscription, AsyncWakeUps):
    """The waiters of one slot, and the subscription that wakes them."""

    async def listen(self, until: float) -> None:
        """Subscribe at the node that has the slot, as AsyncWakeUps.listen() does."""
        if not self.waiters.is_listening:
            # The node that a step of route() contains is ignored. Instead, AsyncWakeUps.listen()
            # subscribes at the node that _find_address() returns at that moment.
            subscribe = super().listen
            steps = route(self.nodes.topology, self.slot, until)
            await self.nodes.perform_steps(steps, lambda _: subscribe(until))

    async def _verify(self, link: Link) -> None:
        """Look up the slot, and close the link if the slot has moved."""
        self.query_node_last()
        await self.nodes.refresh()
        if self.has_slot_moved():
            link.close(ConnectionError("the slot has moved to another node"))


class AsyncSlotResources(SlotCommands):
    """The resources of one slot. They have the same attributes as AsyncClientResources."""

    @property
    def current_connection(self) -> object:
        """A new object each time, so that two commands never seem to share a connection.

        The commands may go to different nodes, so the order of their execution is not certain.
        """
        return object()

    async def call(
        self, command: Call, *, timeout: float | None, first_reply: Reply | None = None
    ) -> Any:
        """Run a script on the node of the slot, and return its reply. Raises WireError.

        Args:
            command: The script with its keys and arguments.
            timeout: Seconds for all tries together, or None for the client's timeout.
            first_reply: The reply to await for the first try, if post() has already sent it.
        """
        reply_to_posted_command = first_reply

        async def send(step: Send) -> Any:
            """Send the command and return its reply. The first try may have been sent already."""
            nonlocal reply_to_posted_command
            if reply_to_posted_command is not None:
                posted_reply = reply_to_posted_command
                reply_to_posted_command = None  # a second try sends the command itself
                return await posted_reply
            connections = self.watchdog.get_node(step.endpoint).connections
            reply = await connections.call(command, timeout=step.timeout, asking=step.asking)
            if not step.asking:  # so the slot is at this node, where its waiters must subscribe
                self.wakeups.resubscribe_unless_at(step.endpoint)
            return reply

        return await self.watchdog.perform_steps(self.route(command, timeout), send)

    def post(self, command: Call, *, timeout: float | None) -> Reply:
        """Send a command at once to the last known node of the slot.

        If that node refuses the command or does not answer, a task looks for the node that has the
        slot, and sends the command there.

        Returns:
            A future of the reply, which may raise WireError.
        """
        final_reply: Reply = asyncio.get_running_loop().create_future()
        _, keys, _ = command
        first_reply = self.watchdog.get_node_of(keys[0]).connections.post(command, timeout=timeout)

        def set_final_reply(
            last_try: asyncio.Future[Any], earlier_error: WireError | None = None
        ) -> None:
            """Set final_reply to the result or the error of the last try.

            If the last try was cancelled or failed with another error than WireError, the error of
            the earlier try is more useful. It is then used instead, if there was an earlier try.
            """
            error = earlier_error if last_try.cancelled() else last_try.exception()
            if error is not None and not isinstance(error, WireError):
                error = earlier_error or error
            if error is None:
                final_reply.set_result(last_try.result())
            else:
                final_reply.set_exception(error)
                # This retrieves the exception, so that asyncio does not warn if no task awaits it.
                final_reply.exception()

        def on_first_reply(reply: Reply) -> None:
            """Set final_reply, or start a task that sends the command to the slot's new node."""
            error = reply.exception()
            if isinstance(error, WireError):
                coroutine = self.call(command, timeout=timeout, first_reply=reply)
                retry = self.watchdog.start_task(coroutine)
                retry.add_done_callback(partial(set_final_reply, earlier_error=error))
            else:
                set_final_reply(reply)

        first_reply.add_done_callback(on_first_reply)
        return final_reply


class AsyncClusterResources:
    """The resources of a cluster. They end with their client or their loop."""

    def __init__(self, client: Any) -> None:
        self._nodes = AsyncClusterNodes(client)
        self.closing_generator = close_with_loop(self._nodes)

    def get_resources_of(self, key: bytes) -> AsyncSlotResources:
        """Return the resources of the key's slot."""
        return AsyncSlotResources(self._nodes, key)
