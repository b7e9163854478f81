"""The nodes of a cluster, and which of them renews what. No I/O: common to threads and asyncio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ..connection import Address
from ..renewals import Abandoned, Batch, Held, Renewal, Renewals
from ..scripts import Call, WireError
from .slots import Place, Topology, is_passing, redirect, slot_of


class Node(Protocol):
    """A node: connections to it, and what renews the leases there."""

    @property
    def watchdog(self) -> Renewals: ...


N = TypeVar("N", bound=Node)


class Nodes(Renewals, Generic[N]):
    """All nodes. As renewals: each lease at the node that has its slot."""

    def __init__(self, address: Address, topology: Topology) -> None:
        super().__init__()
        self.address = address
        self.topology = topology
        self._nodes: dict[Place, N] = {}

    def at(self, place: Place) -> N:
        """The node at this place."""
        found = self._nodes.get(place)
        return found if found is not None else self._nodes.setdefault(place, self._make(place))

    def home_of(self, key: bytes) -> N:
        """The node that has the key now; any node if unknown."""
        return self.at(self.topology.place_of(slot_of(key)) or self.topology.known[0])

    def all(self) -> list[N]:
        """Those that were needed so far."""
        return list(self._nodes.values())

    def add(self, renewal: Renewal) -> None:
        self.home_of(renewal.keys[0]).watchdog.add(renewal)

    def remove(self, held: Held) -> Renewal | None:
        removed = [node.watchdog.remove(held) for node in self.all()]
        return next(filter(None, removed), None)

    def abandon(self, token: str, keys: Sequence[bytes], *, ttl: float, fence_ttl: float) -> None:
        self.home_of(keys[0]).watchdog.abandon(token, keys, ttl=ttl, fence_ttl=fence_ttl)

    def release_abandoned(self, token: str) -> None:
        for node in self.all():
            node.watchdog.release_abandoned(token)

    def _make(self, place: Place) -> N:
        raise NotImplementedError


class Redirected(NamedTuple):
    """What a node's errors say about where the slots are.

    elsewhere  by the number of the call: the node that has to be asked this once
    refresh    whether the cluster should be asked who has which slot
    """

    elsewhere: dict[int, Place]
    refresh: bool


class AtNode(Renewals):
    """Mixed into a watchdog: the leases at one node. Those whose slot moved, move after it."""

    home: Any  # its Nodes
    place: Place

    def due(self) -> Iterator[Batch]:
        for renewal in list(self.renewals.values()):
            there = self._new_home(renewal.keys[0])
            if there is not None:
                there.add(renewal)
                self.remove(renewal.held)
        for held, each in list(self.abandoned.items()):
            there = self._new_home(each.keys[0])
            if there is not None:
                there.take_over(held, each)
                self.abandoned.pop(held, None)
        yield from super().due()

    def take_over(self, held: Held, abandoned: Abandoned) -> None:
        """What another node's watchdog was to release."""
        self.abandoned[held] = abandoned
        self.on_due(abandoned.due)

    def redirected(self, calls: Sequence[Call], replies: Sequence[Any]) -> Redirected:
        """Learn from the replies to these calls where slots have moved."""
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
        return Redirected(elsewhere, refresh)

    def _new_home(self, key: bytes) -> AtNode | None:
        there: AtNode = self.home.home_of(key).watchdog
        return None if there is self else there
