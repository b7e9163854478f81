"""The resources that the locks of one redis.RedisCluster share.

The resources are connections and a watchdog for each node, and a subscription for each slot with
waiters, at the slot's primary. slots.py decides which node gets a command.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from ..connection import Connections, run_on_new_connection
from ..lazy import get_or_create
from ..sans_io.protocol import Call, WireError
from ..sans_io.steps import run_steps
from ..wakeups import WakeUps
from ..watchdog import Watchdog
from .nodes import ClusterNodes, NodeRenewals, SlotCommands, SlotSubscription
from .slots import LOOK_UP_SECONDS, Endpoint, RouteStep, Send, find_hash_tag, route

T = TypeVar("T")


class ThreadClusterNodes(ClusterNodes):
    """The nodes of one cluster, and a subscription for each slot with waiters."""

    def __init__(self, client: Any) -> None:
        cluster_nodes = client.get_nodes()
        # The method that returns a node's client is get_redis_connection() in redis-py.
        get_valkey_connection = getattr(client, "get_valkey_connection", None)
        get_node_client = get_valkey_connection or client.get_redis_connection
        pool = get_node_client(cluster_nodes[0]).connection_pool
        super().__init__(client, cluster_nodes, pool, client.user_on_connect_func)
        self.make_connections = partial(Connections, max_idle=pool.max_connections)
        self.make_watchdog = NodeWatchdog
        self.make_wakeups = lambda key: SlotWakeUps(self.address, self, tag=find_hash_tag(key))

    def perform_steps(self, steps: Generator[RouteStep, Any, T], send: Callable[[Send], Any]) -> T:
        """Perform the steps of route() in this thread and return their result. Raises WireError."""

        def perform_step(step: RouteStep) -> Any:
            """Perform one step and return its result."""
            if isinstance(step, Send):
                return send(step)
            # The step is a Refresh.
            time.sleep(step.pause)
            return self.refresh()

        return run_steps(steps, perform_step)

    def refresh(self) -> None:
        """Look up which node has which slot, unless another thread has just done so."""
        # An RLock, because a signal handler may use a lock while its thread is in this block.
        with get_or_create(self, "_refresh_mutex", threading.RLock):
            if not self.was_refreshed():
                run_steps(self.look_up(), self._read_slots_from)

    def _read_slots_from(self, endpoint: Endpoint) -> Any:
        """Return a node's reply to CLUSTER SLOTS, or the error in its place."""
        try:
            return run_on_new_connection(
                self.get_node(endpoint).address, ("CLUSTER", "SLOTS"), timeout=LOOK_UP_SECONDS
            )[0]
        except Exception as error:
            return error

    def close(self) -> None:
        """Close the idle connections, and end each thread once it has nothing left to do."""
        for wakeups in list(self.wakeups.values()):
            wakeups.close()
        for node in self.list_nodes():
            node.connections.disconnect()
            node.watchdog.close()

    def after_fork(self) -> None:
        """Leave the parent's connections and threads to the parent. Runs in the child."""
        vars(self).pop("_refresh_mutex", None)  # get_or_create() makes a new one
        for wakeups in list(self.wakeups.values()):
            wakeups.after_fork()
        for node in self.list_nodes():
            node.connections.disconnect()
            node.watchdog.after_fork()


class NodeWatchdog(NodeRenewals, Watchdog):
    """The watchdog of the leases on one node of a cluster."""

    def _run_batch(self, calls: Sequence[Call], timeout: float) -> list[Any]:
        """Send the calls as Watchdog._run_batch() does, then follow redirections by ASK."""
        replies = super()._run_batch(calls, timeout)
        endpoint_by_call_index, should_refresh = self.find_redirections(calls, replies)
        for index, endpoint in endpoint_by_call_index.items():
            connections = self.nodes.get_node(endpoint).connections
            try:
                replies[index] = connections.call(calls[index], timeout=timeout, asking=True)
            except WireError as error:
                replies[index] = error
        if should_refresh:
            self.nodes.refresh()
        return replies


class SlotWakeUps(SlotSubscription, WakeUps):
    """The waiters of one slot, and the thread that wakes them."""

    def listen(self, until: float) -> None:
        """Subscribe at the node that has the slot, as WakeUps.listen() does."""
        if not self.waiters.is_listening:
            # The node that a step of route() contains is ignored. Instead, WakeUps.listen()
            # subscribes at the node that _find_address() returns at that moment.
            subscribe = super().listen
            steps = route(self.nodes.topology, self.slot, until)
            self.nodes.perform_steps(steps, lambda _: subscribe(until))

    def _is_on_wrong_server(self, connection: Any) -> bool:
        """Return whether the slot has moved. If there are waiters, look up the slot first."""
        if self.waiters.mailboxes:
            self.query_node_last()
            self.nodes.refresh()
        return self.has_slot_moved()


class SlotResources(SlotCommands):
    """The resources of one slot, with the attributes of client_resources.ClientResources."""

    def __init__(self, cluster: ClusterResources, key: bytes) -> None:
        super().__init__(cluster.nodes, key)
        self._cluster = cluster  # the nodes are closed when no lock refers to the ClusterResources

    def call(self, command: Call, *, timeout: float | None) -> Any:
        """Run a script on the node of the slot, as Connections.call() does.

        `timeout` limits the seconds of all tries together.
        """

        def send(step: Send) -> Any:
            """Send the script to the node in the step, and return the reply."""
            connections = self.watchdog.get_node(step.endpoint).connections
            reply = connections.call(command, timeout=step.timeout, asking=step.asking)
            if not step.asking:
                self.wakeups.resubscribe_unless_at(step.endpoint)
            return reply

        return self._cluster.nodes.perform_steps(self.route(command, timeout), send)


class ClusterResources:
    """The shared resources of a cluster. They live as long as the client, or any of its locks."""

    def __init__(self, client: Any) -> None:
        self.nodes = ThreadClusterNodes(client)
        self.nodes.refresh()
        finalizer = weakref.finalize(self, self.nodes.close)
        finalizer.atexit = False  # not needed when the process ends
        self.after_fork = self.nodes.after_fork
