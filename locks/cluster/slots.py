"""The slots of a cluster: which node gets a command, and how an error reply is handled. No I/O."""

import binascii
import itertools
import re
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

from ..clock import now
from ..sans_io.protocol import WireError, get_hashed_part, has_class_named, is_refusal_of_replica

#: The host and port of a node.
Endpoint: TypeAlias = tuple[str, int]

SLOT_COUNT = 16384
#: Pause before a command is repeated, after TRYAGAIN or because a node is silent. It doubles with
#: each further try, up to the longest pause.
FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5
#: Time for which an acquisition waits for a cluster that is down, even if its own wait is longer.
LONGEST_OUTAGE_SECONDS = 60.0
#: Time that a node may take to answer CLUSTER SLOTS. A look-up that has taken this long queries no
#: further node if some slots are known. The next look-up begins after half of this time or later.
LOOK_UP_SECONDS = 0.5
#: Maximum number of nodes to remember, including those that left the cluster.
MAX_ENDPOINTS = 1000
#: Number of redirections that a command follows without a pause.
MAX_REDIRECTIONS = 5
#: Time that a node may take to answer a command, even at the end of the wait.
MIN_TRY_SECONDS = 0.05


def compute_slot(key: bytes) -> int:
    """Return the slot of a key, as the cluster specification computes it."""
    return binascii.crc_hqx(get_hashed_part(key), 0) % SLOT_COUNT


def find_hash_tag(key: bytes) -> bytes:
    """Return a hash tag of the key's slot, with its braces.

    Usually the tag is the part of the key that is hashed. But the tag becomes part of a channel's
    name, in which hand_over.lua allows no blank, and a tag ends at its first closing brace. So if
    the hashed part contains a blank or a closing brace, the tag is a number instead: the first one
    that hashes to the slot of the key.
    """
    hashed_part = get_hashed_part(key)
    if b"}" not in hashed_part and not re.search(rb"\s", hashed_part):
        return b"{%b}" % hashed_part
    slot = compute_slot(key)
    tags = (b"{%d}" % number for number in itertools.count())
    return next(tag for tag in tags if compute_slot(tag) == slot)


class Redirection(NamedTuple):
    """The node to which an error reply, MOVED or ASK, redirects a command.

    Attributes:
        endpoint: The host and port of the node.
        only_once: True for ASK, which applies to one command only.
    """

    endpoint: Endpoint
    only_once: bool


def parse_redirection(error: BaseException, node: Endpoint) -> Redirection | None:
    """Return the redirection by MOVED or ASK in an error that came from `node`, or None."""
    cause = error.__cause__ if isinstance(error, WireError) and error.__cause__ else error
    if not has_class_named(cause, "ResponseError"):
        return None
    words = str(cause).split()  # for example MOVED 3999 127.0.0.1:6381
    if has_class_named(cause, "AskError"):  # or MovedError, its subclass
        # redis-py has removed the first word.
        words.insert(0, "MOVED" if has_class_named(cause, "MovedError") else "ASK")
    if len(words) < 3 or words[0] not in ("MOVED", "ASK"):
        return None
    host, _, port = words[-1].rpartition(":")
    node_host, _ = node  # an empty host means the host of the same node
    return Redirection(endpoint=(host or node_host, int(port)), only_once=words[0] == "ASK")


def is_temporary(error: WireError) -> bool:
    """Return whether the error came from a moving slot, a failover or an unreachable node.

    If so, a retry of the command may soon succeed.
    """
    cause = error.__cause__ or error
    if not has_class_named(cause, "ResponseError"):
        return True  # the node did not answer
    class_names = "TryAgainError", "ClusterDownError", "MasterDownError"
    first_words = "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING"
    return (
        any(has_class_named(cause, class_name) for class_name in class_names)
        or str(cause).startswith(first_words)
        or is_refusal_of_replica(cause)
    )


class Topology:
    """The nodes of a cluster and their slots, as far as this process knows them.

    Args:
        endpoints: The host and port of each node that the client knows.
        remap: The client's function, if any, that maps the endpoint which a node announces to the
            endpoint to connect to.

    Attributes:
        endpoints: The host and port of each node, in the order in which look-ups query the nodes.
    """

    def __init__(
        self, endpoints: list[Endpoint], remap: Callable[[Endpoint], Endpoint] | None = None
    ) -> None:
        self.endpoints = endpoints
        #: Converts an endpoint that a node announced to an endpoint that the client can reach.
        self._remap = remap or (lambda endpoint: endpoint)
        #: First slot, last slot and their node.
        self._ranges: list[tuple[int, int, Endpoint]] = []
        #: The nodes of slots that have moved since the ranges were learned.
        self._moved_slots: dict[int, Endpoint] = {}

    @property
    def is_known(self) -> bool:
        """True once a node has answered CLUSTER SLOTS."""
        return bool(self._ranges)

    def find_endpoint(self, slot: int) -> Endpoint | None:
        """Return the node that has the slot, or None if it is unknown."""
        if slot in self._moved_slots:
            return self._moved_slots[slot]
        for first_slot, last_slot, endpoint in self._ranges:
            if first_slot <= slot <= last_slot:
                return endpoint
        return None

    def learn_slots(self, reply: Any, node: Endpoint) -> bool:
        """Learn the slots from a node's reply to CLUSTER SLOTS.

        Args:
            reply: The reply, a list of [first slot, last slot, primary, *replicas], or the error in
                its place.
            node: The host and port of the node that sent the reply.

        Returns:
            Whether the slots were learned. It is False if the reply is an error, or if it is empty
            because the node was removed from its cluster.
        """
        if isinstance(reply, Exception):
            self.query_last(node)
        if not reply or isinstance(reply, Exception):
            return False
        ranges = []
        cluster_endpoints = []
        node_host, _ = node
        for first, last, *servers in reply:
            shard_endpoints = []
            for host, port, *_ in servers:
                # A node may not know its own host.
                announced_host = _decode_host(host) or node_host
                shard_endpoints.append(self._remap((announced_host, int(port))))
            ranges.append((int(first), int(last), shard_endpoints[0]))
            cluster_endpoints += shard_endpoints
        self._ranges = ranges
        self._moved_slots = {}
        # The next look-up first queries the nodes of this reply. Known nodes keep their order, in
        # which nodes that did not answer are last: see query_last().
        known_endpoints = [endpoint for endpoint in self.endpoints if endpoint in cluster_endpoints]
        endpoints = dict.fromkeys(known_endpoints + cluster_endpoints + self.endpoints)
        self.endpoints = list(endpoints)[:MAX_ENDPOINTS]
        return True

    def query_last(self, endpoint: Endpoint) -> None:
        """Query this node last in the next look-up, because it refused or was silent."""
        self.endpoints = [known for known in self.endpoints if known != endpoint] + [endpoint]

    def record_move(self, slot: int, endpoint: Endpoint) -> None:
        """Record that a slot has moved to another node."""
        self._moved_slots[slot] = self._remap(endpoint)


class Send(NamedTuple):
    """A step that sends the command to a node. Its result is the reply; it may raise WireError."""

    endpoint: Endpoint
    asking: bool  # whether to send ASKING first
    timeout: float  # seconds


class Refresh(NamedTuple):
    """A step that waits for `pause` seconds, then looks up the slots."""

    pause: float


#: A step of route().
RouteStep: TypeAlias = Send | Refresh


def route(
    topology: Topology, slot: int, until: float, *, repeatable: bool = True
) -> Generator[RouteStep, Any, Any]:
    """Yield the steps that run a command on the node of its slot.

    The command is sent again after a redirection (MOVED or ASK) and, until the time is up, after a
    temporary error.

    Args:
        topology: The known nodes and slots.
        slot: The slot.
        until: Time of our clock after which a temporary error is raised.
        repeatable: False for a release, and for a command that changes the token. If the reply to a
            try is lost, that try may have succeeded. The next try would then get a reply other than
            1, as if the lock had been lost before. Such a reply is not returned: WireError is
            raised instead.

    Returns:
        The reply to the command.

    Raises:
        WireError: No reply came in time, or an error that is not temporary. Its attribute `sent` is
            True if a try may have been executed.
    """
    pause = FIRST_PAUSE_SECONDS
    redirection_count = 0  # since the last pause
    lost_a_reply = False  # True: an earlier try may have been executed
    ask_endpoint: Endpoint | None = None  # the node to which an ASK redirects the next try
    if not topology.is_known:
        yield Refresh(0.0)
    while True:
        endpoint = ask_endpoint or topology.find_endpoint(slot)
        if endpoint is None:
            cause = ConnectionError(f"no node is known to have slot {slot}")
            error = WireError(cause, sent=lost_a_reply)
        else:
            timeout = max(MIN_TRY_SECONDS, until - now())
            try:
                reply = yield Send(endpoint, asking=ask_endpoint is not None, timeout=timeout)
            except WireError as send_error:
                error = send_error
            else:
                if lost_a_reply and not repeatable and reply != 1:
                    cause = ConnectionError("the reply to an earlier try was lost")
                    raise WireError(cause, sent=True)
                return reply
            ask_endpoint = None
            redirection = parse_redirection(error, endpoint)
            if redirection is not None and redirection_count < MAX_REDIRECTIONS:
                redirection_count += 1
                if redirection.only_once:
                    ask_endpoint = redirection.endpoint
                else:
                    topology.record_move(slot, redirection.endpoint)
                continue
            is_error_reply = has_class_named(error.__cause__ or error, "ResponseError")
            lost_a_reply = lost_a_reply or (error.sent and not is_error_reply)
            error.sent = error.sent or lost_a_reply
            if redirection is None and not is_temporary(error):
                raise error
            topology.query_last(endpoint)
        if now() + pause >= until:
            raise error
        redirection_count = 0
        yield Refresh(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _decode_host(host: bytes | str | None) -> str:
    """Return a host of CLUSTER SLOTS as a text, which is empty for nil."""
    return host.decode() if isinstance(host, bytes) else host or ""
