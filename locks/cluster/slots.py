"""A cluster's slots: which node has a lock, and what to do about each error. No I/O."""

import binascii
import itertools
import re
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

from ..clock import now
from ..sans_io.protocol import WireError, hashed_of, is_a, is_refusal_of_replica

Place: TypeAlias = tuple[str, int]  # host and port of a node

SLOT_COUNT = 16384
#: First pause between two tries where the cluster answers TRYAGAIN or a node is silent.
FIRST_PAUSE_SECONDS = 0.02
#: Longest such pause.
LONGEST_PAUSE_SECONDS = 0.5
#: Time for which an acquisition without a limit waits for a cluster that is down.
LONGEST_OUTAGE_SECONDS = 60.0
#: Time that a node may take to answer CLUSTER SLOTS, and for which its answer is used again.
LOOK_UP_SECONDS = 0.5


def slot_of(key: bytes) -> int:
    """Return the slot of a key, as the cluster specification computes it."""
    return binascii.crc_hqx(hashed_of(key), 0) % SLOT_COUNT


def tag_of(key: bytes) -> bytes:
    """Return a hash tag of the key's slot, with its braces.

    It is the key's own tag, or a number where that has blanks: a channel in hand_over.lua cannot
    have blanks.
    """
    hashed = hashed_of(key)
    if b"}" not in hashed and not re.search(rb"\s", hashed):
        return b"{%b}" % hashed
    slot = slot_of(key)
    return next(tag for n in itertools.count() if slot_of(tag := b"{%d}" % n) == slot)


class Redirect(NamedTuple):
    """The error MOVED, or ASK, which counts for one command only."""

    place: Place
    only_once: bool


def redirect(error: BaseException, node: Place) -> Redirect | None:
    """Return the redirection in an error of this node, or None if it is another error."""
    cause = error.__cause__ if isinstance(error, WireError) and error.__cause__ else error
    if not is_a(cause, "ResponseError"):
        return None
    words = str(cause).split()
    if is_a(cause, "AskError"):  # redis-py took the first word, and MovedError is one as well
        words.insert(0, "MOVED" if is_a(cause, "MovedError") else "ASK")
    if len(words) < 3 or words[0] not in ("MOVED", "ASK"):
        return None
    host, _, port = words[-1].rpartition(":")
    return Redirect((host or node[0], int(port)), words[0] == "ASK")


def is_passing(error: WireError) -> bool:
    """Return whether the error may pass soon: a migrating slot, a failover, an unreachable node."""
    cause = error.__cause__ or error
    if not is_a(cause, "ResponseError"):
        return True
    names = "TryAgainError", "ClusterDownError", "MasterDownError"
    words = "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING"
    return (
        any(is_a(cause, name) for name in names)
        or str(cause).startswith(words)
        or is_refusal_of_replica(cause)
    )


class Topology:
    """The nodes and their slots, as far as this process knows them.

    Attributes:
        places: All nodes, in the order in which to ask them for the slots.
    """

    def __init__(self, places: list[Place], remap: Callable[[Place], Place] | None = None) -> None:
        self.places = places
        self._remap = remap or (lambda place: place)
        self._ranges: list[tuple[int, int, Place]] = []
        self._moved: dict[int, Place] = {}

    @property
    def is_known(self) -> bool:
        """True once a node has answered CLUSTER SLOTS."""
        return bool(self._ranges)

    def place_of(self, slot: int) -> Place | None:
        """Return the node that has the slot, or None if it is unknown."""
        if slot in self._moved:
            return self._moved[slot]
        return next((place for first, last, place in self._ranges if first <= slot <= last), None)

    def learn(self, reply: Any, node: Place) -> bool:
        """Learn the slots from a node's reply to CLUSTER SLOTS.

        Args:
            reply: The reply, or the error in its place.
            node: The node.

        Returns:
            False if the reply is an error, or the node was removed from its cluster.
        """
        if isinstance(reply, Exception):
            self.ask_last(node)
        if not reply or isinstance(reply, Exception):
            return False
        ranges = []
        cluster_places = []
        for first, last, *servers in reply:
            shard = [self._remap((_text(host) or node[0], int(port))) for host, port, *_ in servers]
            ranges.append((int(first), int(last), shard[0]))
            cluster_places += shard
        self._ranges = ranges
        self._moved = {}
        kept = [
            place for place in self.places if place in cluster_places
        ]  # keeps ask_last()'s order
        self.places = list(dict.fromkeys(kept + cluster_places + self.places))[:1000]
        return True

    def ask_last(self, place: Place) -> None:
        """Ask this node last from now on, because it refused or was silent."""
        self.places = [other for other in self.places if other != place] + [place]

    def moved(self, slot: int, place: Place) -> None:
        """Record that one slot is at another node now."""
        self._moved[slot] = self._remap(place)


class Send(NamedTuple):
    """A step that sends the command to a node. The driver answers with its reply or a WireError."""

    place: Place
    asking: bool
    within: float  # seconds


class Refresh(NamedTuple):
    """A step that waits for `pause` seconds, then asks the nodes for the slots' nodes."""

    pause: float


Hop: TypeAlias = Send | Refresh


def route(
    topology: Topology, slot: int, until: float, *, repeatable: bool = True
) -> Generator[Hop, Any, Any]:
    """Return the steps by which one command for a slot gets its reply.

    Args:
        topology: The known nodes and slots.
        slot: The slot.
        until: Second of our clock after which a temporary error is propagated.
        repeatable: Whether a reply other than 1 means the same after a try whose reply was lost.

    Raises:
        WireError: Its attribute `sent` says whether any of the tries was sent.
    """
    pause = FIRST_PAUSE_SECONDS
    hops = 0
    sent = False
    once: Place | None = None
    error: WireError | None = None
    if not topology.is_known:
        yield Refresh(0.0)
    while True:
        place = once or topology.place_of(slot)
        if place is None:
            error = WireError(ConnectionError(f"no node is known to have slot {slot}"), sent=sent)
        else:
            try:
                reply = yield Send(place, once is not None, within=max(0.05, until - now()))
                if repeatable or not sent or reply == 1:
                    return reply
                error = WireError(ConnectionError("the reply to a try before was lost"), sent=True)
                raise error
            except WireError as failed:
                if failed is error:
                    raise
                error = failed
                once = None
                redirection = redirect(error, place)
                if redirection is not None and hops < 5:
                    hops += 1
                    if redirection.only_once:
                        once = redirection.place
                    else:
                        topology.moved(slot, redirection.place)
                    continue
                sent = sent or (error.sent and not is_a(error.__cause__ or error, "ResponseError"))
                if redirection is None and not is_passing(error):
                    raise
                topology.ask_last(place)
        error.sent = error.sent or sent
        if now() + pause >= until:
            raise error
        hops = 0
        yield Refresh(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""
