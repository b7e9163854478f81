"""The nodes and slots of a cluster, for threads and for asyncio. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

from ..clock import now
from ..connection import Address
from ..sans_io.options import Options
from ..sans_io.protocol import Call, WireError, load_script
from ..sans_io.renewals import Batches, LeaseId, Renewal, Renewals
from .slots import (
    LONGEST_OUTAGE_SECONDS,
    LOOK_UP_SECONDS,
    Endpoint,
    RouteStep,
    Topology,
    compute_slot,
    is_temporary,
    parse_redirection,
    route,
)


class ClusterNode:
    """A node of a cluster: the connections to it, and the watchdog of the leases on it."""

    def __init__(self, nodes: ClusterNodes, endpoint: Endpoint) -> None:
        self.address = nodes.address.make_node_address(*endpoint)
        self.connections = nodes.make_connections(self.address)
        self.watchdog = nodes.make_watchdog(self.address)
        self.watchdog.nodes = nodes
        self.watchdog.endpoint = endpoint


class ClusterNodes(Renewals):
    """All nodes of a cluster. Each lease is renewed at the node that has its slot.

    There is a subclass for threads and one for asyncio. Each sets the three functions below.

    Attributes:
        make_connections: Returns the connections to the node at an address.
        make_watchdog: Returns the watchdog that renews the leases on the node at an address.
        make_wakeups: Returns the waiters and the subscription of the slot of a key.
    """

    make_connections: Callable[[Address], Any]
    make_watchdog: Callable[[Address], Any]
    make_wakeups: Callable[[bytes], Any]

    def __init__(
        self, client: Any, cluster_nodes: Sequence[Any], pool: Any, on_connect: Any
    ) -> None:
        """Create the nodes without I/O.

        Args:
            client: The client of the cluster.
            cluster_nodes: The nodes that the client knows.
            pool: A connection pool of a node; its options apply to all nodes.
            on_connect: The user's hook, which is called with each new connection. None: no hook.
                redis-py has put another hook into the pool's options: a method of the client, which
                would keep the client alive. `on_connect` replaces that hook.
        """
        super().__init__()
        # The option is redis_connect_func in redis-py and valkey_connect_func in valkey-py.
        hook_names = [name for name in pool.connection_kwargs if name.endswith("_connect_func")]
        self.address = Address(pool, **dict.fromkeys(hook_names, on_connect))
        remap = getattr(client.nodes_manager, "address_remap", None)
        self.topology = Topology([(node.host, int(node.port)) for node in cluster_nodes], remap)
        self._nodes: dict[Endpoint, ClusterNode] = {}
        self.wakeups: dict[int, Any] = {}  # one for each slot that has had a lock
        self._refreshed_at = -math.inf

    def get_node(self, endpoint: Endpoint) -> ClusterNode:
        """Return the node at this endpoint."""
        node = self._nodes.get(endpoint)
        return node or self._nodes.setdefault(endpoint, ClusterNode(self, endpoint))

    def get_wakeups_of(self, key: bytes) -> Any:
        """Return the wake-ups of the key's slot: its waiters and their subscription.

        The result is a SlotWakeUps for threads, and an AsyncSlotWakeUps for asyncio.
        """
        slot = compute_slot(key)
        wakeups = self.wakeups.get(slot)
        if wakeups is None:
            new_wakeups = self.make_wakeups(key)
            new_wakeups.nodes = self
            new_wakeups.slot = slot
            wakeups = self.wakeups.setdefault(slot, new_wakeups)
        return wakeups

    def was_refreshed(self) -> bool:
        """Return whether the slots were looked up a moment ago."""
        return now() - self._refreshed_at < LOOK_UP_SECONDS / 2

    def look_up(self) -> Generator[Endpoint, Any, None]:
        """Yield the nodes to query for the slots, one after the other, until one knows the slots.

        The result of each yield is the node's reply to CLUSTER SLOTS, or the error in its place.

        Renewals and waiters wait for the look-up. So if an earlier look-up succeeded, this look-up
        ends after LOOK_UP_SECONDS. In the next look-up, the nodes that did not answer come last.
        """
        started_at = now()
        for endpoint in list(self.topology.endpoints):
            if self.topology.is_known and now() - started_at >= LOOK_UP_SECONDS:
                break
            reply = yield endpoint
            if self.topology.learn_slots(reply, endpoint):
                break
        self._refreshed_at = now()

    def get_node_of(self, key: bytes) -> ClusterNode:
        """Return the node that has the key, or any node if that is not known yet."""
        endpoint = self.topology.find_endpoint(compute_slot(key))
        return self.get_node(endpoint or self.topology.endpoints[0])

    def list_nodes(self) -> list[ClusterNode]:
        """Return the nodes that were used so far."""
        return list(self._nodes.values())

    def add(self, renewal: Renewal) -> None:
        """Renew the lease at the node that has its slot."""
        key, _ = renewal.lease_id
        self.get_node_of(key).watchdog.add(renewal)

    def remove(self, lease_id: LeaseId) -> Renewal | None:
        """Stop renewing the lease at every node.

        Returns:
            The renewal that was removed, or None if the lease was not being renewed.
        """
        removed = [node.watchdog.remove(lease_id) for node in self.list_nodes()]
        renewals = [renewal for renewal in removed if renewal is not None]
        return renewals[0] if renewals else None

    def shorten(self, lease_id: LeaseId, seconds: float) -> None:
        """Shorten the lease, as Renewals.shorten() does, at every node that may renew it."""
        for node in self.list_nodes():
            node.watchdog.shorten(lease_id, seconds)

    def abandon(self, token: str, lock: Options[Any]) -> None:
        """Release the token repeatedly at the node with the lock's slot: see Renewals.abandon()."""
        self.get_node_of(lock.keys[0]).watchdog.abandon(token, lock)

    def release_abandoned(self, token: str) -> None:
        """Release the token at once at every node, as Renewals.release_abandoned() does."""
        for node in self.list_nodes():
            node.watchdog.release_abandoned(token)


class NodeRenewals(Renewals):
    """A mixin for a watchdog of one node. When a slot moves, its leases move to the new node.

    Attributes:
        nodes: All nodes of the cluster, a ClusterNodes.
        endpoint: The host and port of this node.
    """

    nodes: Any
    endpoint: Endpoint

    def generate_due_batches(self) -> Batches:
        """Yield the batches that are due, as Renewals.generate_due_batches() does.

        If a slot has moved, first give its leases and abandoned tokens to the watchdog of the new
        node.
        """
        for (key, _), renewal in list(self.renewals.items()):
            new_watchdog = self._find_new_watchdog(key)
            if new_watchdog is not None:
                new_watchdog.add(renewal)
                self.remove(renewal.lease_id)
        for lease_id, abandoned in list(self.abandoned.items()):
            key, _ = lease_id
            new_watchdog = self._find_new_watchdog(key)
            if new_watchdog is not None:
                new_watchdog.abandoned[lease_id] = abandoned
                new_watchdog.wake_before(abandoned.due)
                self.abandoned.pop(lease_id, None)
        yield from super().generate_due_batches()

    def find_redirections(
        self, calls: Sequence[Call], replies: Sequence[Any]
    ) -> tuple[dict[int, Endpoint], bool]:
        """Learn from the replies to these calls which slots have moved.

        Returns:
            A dict and a boolean. The dict has the nodes to which to send the calls that were
            redirected by ASK, by the indices of these calls. The boolean says whether to look up
            the slots again.
        """
        endpoint_by_call_index = {}
        should_refresh = False
        for index, reply in enumerate(replies):
            if not isinstance(reply, Exception):
                continue
            redirection = parse_redirection(reply, self.endpoint)
            if redirection is None:
                error = reply if isinstance(reply, WireError) else WireError(reply, sent=True)
                if is_temporary(error):
                    should_refresh = True
                    self.nodes.topology.query_last(self.endpoint)
            elif redirection.only_once:
                endpoint_by_call_index[index] = redirection.endpoint
            else:
                _, keys, _ = calls[index]
                self.nodes.topology.record_move(compute_slot(keys[0]), redirection.endpoint)
        return endpoint_by_call_index, should_refresh

    def _find_new_watchdog(self, key: bytes) -> NodeRenewals | None:
        """Return the watchdog of the node that has the key now, or None if it is this watchdog."""
        watchdog: NodeRenewals = self.nodes.get_node_of(key).watchdog
        return None if watchdog is self else watchdog


class SlotSubscription:
    """A mixin for WakeUps and AsyncWakeUps: subscribes at the node that has the waiters' slot.

    Attributes:
        nodes: All nodes of the cluster, a ClusterNodes.
        slot: The number of the slot.
        endpoint: The host and port of the node at which this object last subscribed. None before
            the first subscription, and if no node is known to have the slot.
    """

    nodes: Any
    slot: int
    endpoint: Endpoint | None = None
    waiters: Any  # an attribute of the wake-ups
    resubscribe: Any  # a method of the wake-ups

    def resubscribe_unless_at(self, endpoint: Endpoint) -> None:
        """Resubscribe unless the subscription is at this node, which just executed a command.

        The command shows that this node has the slot.
        """
        if self.waiters.is_listening and endpoint != self.endpoint:
            self.resubscribe()

    def query_node_last(self) -> None:
        """Make the next look-up query the subscription's node last, because it did not answer."""
        if self.endpoint is not None:
            self.nodes.topology.query_last(self.endpoint)

    def has_slot_moved(self) -> bool:
        """Return whether the slot is no longer known to be at the node of the subscription."""
        current_endpoint: Endpoint | None = self.nodes.topology.find_endpoint(self.slot)
        return current_endpoint != self.endpoint

    def _find_address(self) -> Address:
        """Return the address of the slot's node, and remember that node in `endpoint`."""
        self.endpoint = self.nodes.topology.find_endpoint(self.slot)
        if self.endpoint is None:
            raise ConnectionError(f"no node is known to have slot {self.slot}")
        address: Address = self.nodes.get_node(self.endpoint).address
        return address


class SlotCommands:
    """The commands for one slot. They follow the slot from node to node.

    Attributes:
        watchdog: All nodes of the cluster, which renew the leases.
        wakeups: The wake-ups of the slot.
    """

    def __init__(self, nodes: Any, key: bytes) -> None:
        self.watchdog = nodes  # a ClusterNodes passes each renewal to the watchdog of a node
        self.wakeups = nodes.get_wakeups_of(key)

    @property
    def connections(self) -> Any:
        """This object, in place of connections to one server: its call() finds the slot's node."""
        return self

    def route(self, command: Call, timeout: float | None) -> Generator[RouteStep, Any, Any]:
        """Return the steps that run a script on the node of the slot: see slots.route().

        Args:
            command: The script with its keys and arguments.
            timeout: Seconds for all tries together, but at most LONGEST_OUTAGE_SECONDS. None: the
                client's timeout.
        """
        seconds = self.watchdog.address.timeout
        if timeout is not None:
            seconds = min(timeout, LONGEST_OUTAGE_SECONDS)
        until = now() + seconds
        script, _, args = command
        # Suppose that the command is a release, or changes the token, and that the first try
        # succeeds, but its reply is lost. The token then no longer has the lock, so a second try
        # would be answered as if the lock had been lost before.
        changes_token = False
        if script == load_script("renew"):
            old_token, _, _, new_token, _ = args
            changes_token = old_token != new_token
        repeatable = script != load_script("release") and not changes_token
        return route(self.watchdog.topology, self.wakeups.slot, until, repeatable=repeatable)
