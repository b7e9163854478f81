"""What the locks of one redis.RedisCluster share: for each node, connections and a watchdog; for
each slot in which somebody waits, a subscription at the slot's primary.

Where a command goes, and what an error for a reply means, is decided in slots.py.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ..connection import Address, Connections
from ..scripts import Arg, Call, Script, WireError, script
from ..support import lazily, now, run
from ..wakeups import WakeUps
from ..watchdog import Watchdog
from .nodes import AtNode, Nodes
from .slots import (
    OUTAGE,
    Hop,
    Place,
    Send,
    Topology,
    route,
    slot_of,
    tag_of,
)

T = TypeVar("T")

HOOK = "redis_connect_func"
#: Seconds that a node may take to answer CLUSTER SLOTS, and for which its answer is used again.
LOOK_UP = 0.5


class SyncNode:
    """The connections to one node, and the thread that renews the leases there."""

    def __init__(self, nodes: SyncNodes, place: Place, most: int) -> None:
        self.address = nodes.address.at(*place)
        self.connections = Connections(self.address, most=most)
        self.watchdog = NodeWatchdog(nodes, place, self.address)


class SyncNodes(Nodes[SyncNode]):
    """The nodes of one cluster, and the subscriptions: one for each slot that was waited for."""

    def __init__(self, address: Address, topology: Topology, most: int) -> None:
        super().__init__(address, topology)
        self.wakeups: dict[int, SlotWakeUps] = {}
        self._most = most
        self._refreshed = -math.inf

    def _make(self, place: Place) -> SyncNode:
        return SyncNode(self, place, self._most)

    def drive(self, steps: Generator[Hop, Any, T], send: Callable[[Send], Any]) -> T:
        """Do the steps of route() in this thread; their result. Raises WireError."""

        def do(step: Hop) -> Any:
            if isinstance(step, Send):
                return send(step)
            threading.Event().wait(step.pause)
            return self.refresh()

        return run(steps, do)

    def refresh(self) -> None:
        """Ask the nodes in turn who has which slot, unless that was done just now."""
        with lazily(self, "_refreshing", threading.Lock):
            if now() - self._refreshed < LOOK_UP / 2:
                return
            for place in list(self.topology.known):
                try:
                    reply = self.at(place).connections.run("CLUSTER", "SLOTS", within=LOOK_UP)
                except WireError:
                    self.topology.ask_last(place)
                    continue
                if self.topology.learn(reply, place):
                    break
            self._refreshed = now()

    def close(self) -> None:
        """Close all connections: the cluster is no longer used."""
        for wakeups in list(self.wakeups.values()):
            wakeups.close()
        for node in self.all():
            node.connections.disconnect()
            node.watchdog.close()

    def after_fork(self) -> None:
        vars(self).pop("_refreshing", None)
        for wakeups in list(self.wakeups.values()):
            wakeups.after_fork()
        for node in self.all():
            node.connections.disconnect()
            node.watchdog.after_fork()


class NodeWatchdog(AtNode, Watchdog):
    """Renews the leases on one node."""

    def __init__(self, nodes: SyncNodes, place: Place, address: Address) -> None:
        super().__init__(address)
        self.home = nodes
        self.place = place

    def _ask(self, calls: Sequence[Call], timeout: float) -> list[Any]:
        replies = super()._ask(calls, timeout)
        elsewhere, refresh = self.redirected(calls, replies)
        for number, place in elsewhere.items():
            there = self.home.at(place).connections
            try:
                replies[number] = there.call(*calls[number], within=timeout, asking=True)
            except WireError as error:
                replies[number] = error
        if refresh:
            self.home.refresh()
        return replies


class SlotWakeUps(WakeUps):
    """The waiters of one slot, and the thread that wakes them."""

    def __init__(self, nodes: SyncNodes, slot: int, tag: bytes) -> None:
        super().__init__(nodes.address, nodes, tag=tag)
        self._nodes = nodes
        self._slot = slot
        self._place: Place | None = None

    def listen(self, until: float) -> None:
        if not self.listening:
            listen = super().listen
            self._nodes.drive(
                route(self._nodes.topology, self._slot, until), lambda _: listen(until)
            )

    def seen_at(self, place: Place) -> None:
        """A command for the slot was served there: if we listen elsewhere, all ask again."""
        if self.listening and place != self._place:
            self.resubscribe()

    def _where(self) -> Address:
        self._place = self._nodes.topology.place_of(self._slot)
        if self._place is None:
            raise ConnectionError(f"no node is known to have slot {self._slot}")
        return self._nodes.at(self._place).address


class SlotConnections:
    """Commands for one slot, wherever it is."""

    def __init__(self, nodes: SyncNodes, slot: int, wakeups: SlotWakeUps) -> None:
        self._nodes = nodes
        self._slot = slot
        self._wakeups = wakeups

    def call(
        self, which: Script, keys: Sequence[bytes], args: Sequence[Arg], *, within: float | None
    ) -> Any:
        """As Connections.call, but `within` includes the time until a slot has settled."""
        within = self._nodes.address.timeout if within is None else min(within, OUTAGE)
        until = now() + within

        def send(step: Send) -> Any:
            left = max(0.05, until - now())
            there = self._nodes.at(step.place).connections
            reply = there.call(which, keys, args, within=left, asking=step.asking)
            if not step.asking:
                self._wakeups.seen_at(step.place)
            return reply

        steps = route(
            self._nodes.topology, self._slot, until, repeatable=which is not script("release")
        )
        return self._nodes.drive(steps, send)


class Slot:
    """What a lock needs of its cluster: the same parts as shared.Shared has."""

    def __init__(self, cluster: Cluster, key: bytes) -> None:
        self._cluster = cluster  # keeps it alive
        nodes, slot = cluster.nodes, slot_of(key)
        found = nodes.wakeups.get(slot)
        self.wakeups = found or nodes.wakeups.setdefault(
            slot, SlotWakeUps(nodes, slot, tag_of(key))
        )
        self.connections = SlotConnections(nodes, slot, self.wakeups)
        self.watchdog = nodes


class Cluster:
    """Lives as long as its client, or a lock of it."""

    def __init__(self, client: Any) -> None:
        known = client.get_nodes()
        valkey = getattr(client, "get_valkey_connection", None)
        pool = (valkey or client.get_redis_connection)(known[0]).connection_pool
        # Not the client's own on_connect, which would keep the client alive.
        address = Address(pool, **{_hook(pool): client.user_on_connect_func})
        remap = getattr(client.nodes_manager, "address_remap", None)
        topology = Topology([(node.host, int(node.port)) for node in known], remap)
        self.nodes = SyncNodes(address, topology, pool.max_connections)
        self.nodes.refresh()
        weakref.finalize(self, self.nodes.close).atexit = False

    def after_fork(self) -> None:
        self.nodes.after_fork()


def _hook(pool: Any) -> str:
    """What redis-py calls redis_connect_func, and valkey-py valkey_connect_func."""
    return next((n for n in pool.connection_kwargs if n.endswith("_connect_func")), HOOK)


_clusters: WeakKeyDictionary[Any, Cluster] = WeakKeyDictionary()


def cluster_of(client: Any) -> Cluster:
    """The one of this process for this client."""
    found = _clusters.get(client)
    return found if found is not None else _clusters.setdefault(client, Cluster(client))


def _after_fork() -> None:
    for cluster in list(_clusters.values()):
        cluster.after_fork()


os.register_at_fork(after_in_child=_after_fork)
