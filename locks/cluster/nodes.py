"""The nodes and slots of a cluster, common to threads and asyncio. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

from ..clock import now
from ..connection import Address
from ..options import Options
from ..protocol import Call, WireError, script
from ..renewals import Batches, Held, Renewal, Renewals
from .slots import (
    LONGEST_OUTAGE_SECONDS,
    LOOK_UP_SECONDS,
    Hop,
    Place,
    Topology,
    is_passing,
    redirect,
    route,
    slot_of,
)


class ClusterNode:
    """A node: the connections to it, and a watchdog for the leases there."""

    def __init__(self, nodes: ClusterNodes, place: Place) -> None:
        self.address = nodes.address.at(*place)
        self.connections = nodes.make_connections(self.address)
        self.watchdog = nodes.make_watchdog(self.address)
        self.watchdog.home, self.watchdog.place = nodes, place


class ClusterNodes(Renewals):
    """All nodes. As renewals: each lease at the node that has its slot.

    pool        says how a node is connected to
    on_connect  called with each connection, instead of the client's own, which would keep it alive
    """

    make_connections: Callable[[Address], Any]
    make_watchdog: Callable[[Address], Any]
    make_wakeups: Callable[[bytes], Any]

    def __init__(self, client: Any, known: Sequence[Any], pool: Any, on_connect: Any) -> None:
        super().__init__()
        hooks = [name for name in pool.connection_kwargs if name.endswith("_connect_func")]
        self.address = Address(pool, **dict.fromkeys(hooks, on_connect))
        remap = getattr(client.nodes_manager, "address_remap", None)
        self.topology = Topology([(node.host, int(node.port)) for node in known], remap)
        self._nodes: dict[Place, ClusterNode] = {}
        self.wakeups: dict[int, Any] = {}  # one for each slot that was waited for
        self._refreshed = -math.inf

    def at(self, place: Place) -> ClusterNode:
        """Return the node at this place."""
        return self._nodes.get(place) or self._nodes.setdefault(place, ClusterNode(self, place))

    def wakeups_of(self, key: bytes) -> Any:
        """Return the wake-ups of the key's slot."""
        slot = slot_of(key)
        found = self.wakeups.get(slot)
        if found is None:
            made = self.make_wakeups(key)
            made.nodes, made.slot = self, slot
            found = self.wakeups.setdefault(slot, made)
        return found

    def was_refreshed(self) -> bool:
        """Whether the nodes were asked just now who has which slot."""
        return now() - self._refreshed < LOOK_UP_SECONDS / 2

    def look_up(self) -> Generator[Place, Any, None]:
        """Return the steps that ask the nodes in turn which node has which slot.

        The answer to a step is the node's reply to CLUSTER SLOTS, or the error in its place.

        Where that takes long, the others are left to the next time, when the silent ones come last:
        meanwhile renewals and waiters wait. Not before anything is known.
        """
        started = now()
        for place in list(self.topology.known):
            if self.topology.is_known and now() - started >= LOOK_UP_SECONDS:
                break
            if self.topology.learn((yield place), place):
                break
        self._refreshed = now()

    def home_of(self, key: bytes) -> ClusterNode:
        """Return the node that has the key now, or any node if that is unknown."""
        return self.at(self.topology.place_of(slot_of(key)) or self.topology.known[0])

    def all(self) -> list[ClusterNode]:
        """Those that were needed so far."""
        return list(self._nodes.values())

    def add(self, renewal: Renewal) -> None:
        """Renew the lease at the node that has its slot."""
        self.home_of(renewal.held[0]).watchdog.add(renewal)

    def remove(self, held: Held) -> Renewal | None:
        """Stop renewing the lease at every node."""
        removed = [node.watchdog.remove(held) for node in self.all()]
        return next(filter(None, removed), None)

    def shorten(self, held: Held, seconds: float) -> None:
        """Shorten the lease at every node."""
        for node in self.all():
            node.watchdog.shorten(held, seconds)

    def abandon(self, token: str, lock: Options[Any]) -> None:
        """Release the token at the node that has its slot."""
        self.home_of(lock.keys[0]).watchdog.abandon(token, lock)

    def release_abandoned(self, token: str) -> None:
        """Release the token at once at every node that has it abandoned."""
        for node in self.all():
            node.watchdog.release_abandoned(token)


class NodeRenewals(Renewals):
    """Mixed into a watchdog: the leases at one node. Those whose slot moved, move after it.

    home  its ClusterNodes
    """

    home: Any
    place: Place

    def due(self) -> Batches:
        """Return the steps that are due now, after moving the leases of slots that moved."""
        for renewal in list(self.renewals.values()):
            there = self._new_home(renewal.held[0])
            if there is not None:
                there.add(renewal)
                self.remove(renewal.held)
        for held, each in list(self.abandoned.items()):
            there = self._new_home(held[0])
            if there is not None:
                there.abandoned[held] = each
                there.on_due(each.due)
                self.abandoned.pop(held, None)
        yield from super().due()

    def redirected(
        self, calls: Sequence[Call], replies: Sequence[Any]
    ) -> tuple[dict[int, Place], bool]:
        """Learn from the replies to these calls where slots have moved.

        Returns, by the number of the call, the node that has to be asked this once; and whether
        the cluster should be asked who has which slot.
        """
        elsewhere, refresh = {}, False
        for number, reply in enumerate(replies):
            if not isinstance(reply, Exception):
                continue
            found = redirect(reply, self.place)
            if found is None:
                error = reply if isinstance(reply, WireError) else WireError(reply, sent=True)
                if is_passing(error):
                    refresh = True
                    self.home.topology.ask_last(self.place)
            elif found.only_once:
                elsewhere[number] = found.place
            else:
                self.home.topology.moved(slot_of(calls[number][1][0]), found.place)
        return elsewhere, refresh

    def _new_home(self, key: bytes) -> NodeRenewals | None:
        there: NodeRenewals = self.home.home_of(key).watchdog
        return None if there is self else there


class SlotSubscription:
    """Mixed into wake-ups: the waiters of one slot, which listen at the node that has it."""

    nodes: Any
    slot: int
    place: Place | None = None
    waiters: Any  # of the wake-ups that it is mixed into
    resubscribe: Any

    def seen_at(self, place: Place) -> None:
        """Make all waiters poll if a command was served at another node than the subscription."""
        if self.waiters.listening and place != self.place:
            self.resubscribe()

    def suspect(self) -> None:
        """Our node is silent: it may be idle, or replaced. The others are to be asked."""
        if self.place is not None:
            self.nodes.topology.ask_last(self.place)

    def is_replaced(self) -> bool:
        """Whether another node has the slot, as far as is known."""
        there: Place | None = self.nodes.topology.place_of(self.slot)
        return there != self.place

    def _where(self) -> Address:
        self.place = self.nodes.topology.place_of(self.slot)
        if self.place is None:
            raise ConnectionError(f"no node is known to have slot {self.slot}")
        address: Address = self.nodes.at(self.place).address
        return address


class SlotCommands:
    """Commands for one slot, wherever it is: what a lock needs of its cluster.

    watchdog  all nodes, as renewals
    """

    def __init__(self, nodes: Any, key: bytes) -> None:
        self.watchdog = nodes
        self.wakeups = nodes.wakeups_of(key)

    @property
    def connections(self) -> Any:
        """These: see call()."""
        return self

    def route(self, command: Call, within: float | None) -> Generator[Hop, Any, Any]:
        """Return the steps by which the script gets its reply, as slots.route() does."""
        until = now() + (
            self.watchdog.address.timeout if within is None else min(within, LONGEST_OUTAGE_SECONDS)
        )
        which, _, args = command
        adopts = which == script("renew") and args[0] != args[3]
        repeatable = which != script("release") and not adopts
        return route(self.watchdog.topology, self.wakeups.slot, until, repeatable=repeatable)
