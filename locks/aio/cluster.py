"""What the locks of one redis.asyncio.RedisCluster share in one event loop.

Where a command goes, and what an error for a reply means, is decided in ../cluster/slots.py;
which node renews what, in ../cluster/nodes.py.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar

from ..cluster.nodes import AtNode, Nodes
from ..cluster.slots import (
    OUTAGE,
    Hop,
    Place,
    Send,
    Topology,
    is_passing,
    redirect,
    route,
    slot_of,
    tag_of,
)
from ..connection import Address
from ..scripts import Arg, Call, Script, WireError, is_a, script
from ..support import now, run_async
from .connections import AsyncConnections
from .line import Reply
from .shared import AsyncParts, until_the_end
from .wakeups import AsyncWakeUps
from .watchdog import AsyncWatchdog

T = TypeVar("T")

#: Seconds that a node may take to answer CLUSTER SLOTS, and for which its answer is used again.
LOOK_UP = 0.5


class AsyncNode:
    """The connection to one node, and the task that renews the leases there."""

    def __init__(self, nodes: AsyncNodes, place: Place) -> None:
        self.address = nodes.address.at(*place)
        self.connections = AsyncConnections(self.address)
        self.watchdog = AsyncNodeWatchdog(nodes, place, self.address)


class AsyncNodes(Nodes[AsyncNode]):
    """The nodes of one cluster, and the subscriptions: one for each slot that was waited for."""

    def __init__(self, address: Address, topology: Topology) -> None:
        super().__init__(address, topology)
        self.slots: dict[int, AsyncSlot] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self._refreshed = -math.inf
        self._refreshing: asyncio.Task[None] | None = None

    def _make(self, place: Place) -> AsyncNode:
        return AsyncNode(self, place)

    async def drive(
        self, steps: Generator[Hop, Any, T], send: Callable[[Send], Awaitable[Any]]
    ) -> T:
        """Do the steps of route(); their result. Raises WireError."""

        async def do(step: Hop) -> Any:
            if isinstance(step, Send):
                return await send(step)
            await asyncio.sleep(step.pause)
            return await self.refresh()

        return await run_async(steps, do)

    async def refresh(self) -> None:
        """Ask the nodes in turn who has which slot, unless that was done just now."""
        if now() - self._refreshed < LOOK_UP / 2:
            return
        if self._refreshing is None or self._refreshing.done():
            loop = asyncio.get_running_loop()
            self._refreshing = loop.create_task(self._refresh(), name="locks.cluster")
        await asyncio.wait({self._refreshing})  # one for all who want it; cancelling leaves it

    async def _refresh(self) -> None:
        for place in list(self.topology.known):
            try:
                reply = await self.at(place).connections.run("CLUSTER", "SLOTS", within=LOOK_UP)
            except WireError:
                self.topology.ask_last(place)
                continue
            if self.topology.learn(reply, place):
                break
        self._refreshed = now()

    async def aclose(self) -> None:
        """Close all connections, and end all tasks."""
        for slot in list(self.slots.values()):
            await slot.wakeups.aclose()
        for node in self.all():
            await node.watchdog.aclose()
            await node.connections.aclose()
        for task in {*self.tasks, *([self._refreshing] if self._refreshing else ())}:
            task.cancel()


class AsyncNodeWatchdog(AtNode, AsyncWatchdog):
    """Renews the leases on one node."""

    def __init__(self, nodes: AsyncNodes, place: Place, address: Address) -> None:
        super().__init__(address)
        self.home = nodes
        self.place = place

    async def _ask(self, calls: Sequence[Call], timeout: float) -> list[Any]:
        replies = await super()._ask(calls, timeout)
        elsewhere, refresh = self.redirected(calls, replies)
        for number, place in elsewhere.items():
            there = self.home.at(place).connections
            try:
                replies[number] = await there.call(*calls[number], within=timeout, asking=True)
            except WireError as error:
                replies[number] = error
        if refresh:
            await self.home.refresh()
        return replies


class AsyncSlotWakeUps(AsyncWakeUps):
    """The waiters of one slot, and the task that wakes them."""

    def __init__(self, nodes: AsyncNodes, slot: int, tag: bytes) -> None:
        super().__init__(nodes.address, nodes, tag=tag)
        self._nodes = nodes
        self._slot = slot
        self._place: Place | None = None

    async def listen(self, until: float) -> None:
        if not self.waiters.listening:
            listen = super().listen
            steps = route(self._nodes.topology, self._slot, until)
            await self._nodes.drive(steps, lambda _: listen(until))

    def seen_at(self, place: Place) -> None:
        """A command for the slot was served there: if we listen elsewhere, all ask again."""
        if self.waiters.listening and place != self._place:
            self.resubscribe()

    def _where(self) -> Address:
        self._place = self._nodes.topology.place_of(self._slot)
        if self._place is None:
            raise ConnectionError(f"no node is known to have slot {self._slot}")
        return self._nodes.at(self._place).address


class AsyncSlotConnections:
    """Commands for one slot, wherever it is."""

    def __init__(self, nodes: AsyncNodes, slot: int, wakeups: AsyncSlotWakeUps) -> None:
        self._nodes = nodes
        self._slot = slot
        self._wakeups = wakeups

    @property
    def line(self) -> object:
        """Never the same: commands may go to one node after another, in any order."""
        return object()

    async def call(
        self,
        which: Script,
        keys: Sequence[bytes],
        args: Sequence[Arg],
        *,
        within: float | None,
        sent: bool = False,
    ) -> Any:
        """As AsyncConnections.call, but `within` includes the time until a slot has settled."""
        within = self._nodes.address.timeout if within is None else min(within, OUTAGE)
        until = now() + within

        async def send(step: Send) -> Any:
            left = max(0.05, until - now())
            there = self._nodes.at(step.place).connections
            reply = await there.call(which, keys, args, within=left, asking=step.asking)
            if not step.asking:
                self._wakeups.seen_at(step.place)
            return reply

        repeatable = which is not script("release")
        steps = route(self._nodes.topology, self._slot, until, repeatable=repeatable, sent=sent)
        return await self._nodes.drive(steps, send)

    def post(
        self, which: Script, keys: Sequence[bytes], args: Sequence[Arg], *, within: float | None
    ) -> Reply:
        """As AsyncConnections.post: sent at once to where the slot was last; from there on, a task
        sees to it."""
        loop = asyncio.get_running_loop()
        done: Reply = loop.create_future()
        place = self._nodes.topology.place_of(self._slot) or self._nodes.topology.known[0]
        first = self._nodes.at(place).connections.post(which, keys, args, within=within)

        async def go_on(error: WireError) -> None:
            sent = error.sent and not is_a(error.__cause__ or error, "ResponseError")
            try:
                done.set_result(await self.call(which, keys, args, within=within, sent=sent))
            except BaseException as failed:
                wrapped = failed if isinstance(failed, WireError) else error
                done.set_exception(wrapped)
                done.exception()  # retrieved: nobody need wait for it

        def answered(reply: Reply) -> None:
            error = reply.exception()
            if error is None:
                done.set_result(reply.result())
            elif isinstance(error, WireError) and (redirect(error, place) or is_passing(error)):
                found = redirect(error, place)
                if found is not None and not found.only_once:
                    self._nodes.topology.moved(self._slot, found.place)
                task = loop.create_task(go_on(error), name="locks.cluster")
                self._nodes.tasks.add(task)
                task.add_done_callback(self._nodes.tasks.discard)
            else:
                done.set_exception(error)
                done.exception()

        first.add_done_callback(answered)
        return done


class AsyncSlot:
    """What a lock needs of its cluster: the same parts as AsyncShared has."""

    def __init__(self, nodes: AsyncNodes, key: bytes) -> None:
        slot = slot_of(key)
        self.wakeups = AsyncSlotWakeUps(nodes, slot, tag_of(key))
        self.connections = AsyncSlotConnections(nodes, slot, self.wakeups)
        self.watchdog = nodes


class AsyncCluster:
    """Lives as long as its client and its loop."""

    def __init__(self, client: Any) -> None:
        manager = client.nodes_manager
        found = manager.nodes_cache or manager.startup_nodes
        known = list(found.values()) if isinstance(found, dict) else list(found)
        # Not the client's own on_connect, which would keep the client alive.
        hooks = [n for n in known[0].connection_kwargs if n.endswith("_connect_func")]
        address = Address(known[0], **dict.fromkeys(hooks))
        remap = getattr(manager, "address_remap", None)
        places = [(node.host, int(node.port)) for node in known]
        self._nodes = AsyncNodes(address, Topology(places, remap))
        self.end = until_the_end(self._nodes)

    def parts(self, key: bytes) -> AsyncParts:
        """Those of the key's slot."""
        slots, slot = self._nodes.slots, slot_of(key)
        if slot not in slots:
            slots[slot] = AsyncSlot(self._nodes, key)
        return slots[slot]
