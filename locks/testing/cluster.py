"""A real cluster for the tests, with primaries, replicas and slots that can be moved."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..cluster.slots import SLOT_COUNT
from .server import Server, eventually, find_free_port


class ClusterServers:
    """The nodes of a cluster on loopback: the primaries, then their replicas.

    A node that is silent for a second counts as failed. Its slots are not served until one of its
    replicas is promoted. All other slots are still served.
    """

    def __init__(self, *, primaries: int = 3, replicas: int = 0) -> None:
        options = "--cluster-enabled yes --cluster-require-full-coverage no"
        # With validity factor 0 a replica takes over even if its data are old.
        options += " --cluster-node-timeout 1000 --cluster-replica-validity-factor 0"
        self.nodes: list[Server] = []
        self._bus_ports: list[str] = []
        try:
            for _ in range(primaries + replicas):
                # A port is chosen just before it is used, because another process may take it.
                self._bus_ports.append(str(find_free_port()))
                self.nodes.append(Server(*options.split(), "--cluster-port", self._bus_ports[-1]))
            self._form_cluster(primaries)
        except BaseException:
            self.stop()
            raise

    @property
    def port(self) -> int:
        """The port of the first node."""
        return self.nodes[0].port

    def run(self, node: Server, *command: Any) -> Any:
        """Run a command on this node, even if another node has its slot."""
        return node.make_client(decode_responses=True).execute_command(*command)

    def find_primary(self, slot: int) -> Server:
        """Return the primary that has this slot. Ask the running nodes until one knows it."""
        for node in self.nodes:
            if node.process is None:
                continue
            primary_port = self._find_primary_port(node, slot)
            if primary_port is not None:
                return next(other for other in self.nodes if other.port == primary_port)
        raise AssertionError(f"no node has slot {slot}")

    def _find_primary_port(self, node: Server, slot: int) -> int | None:
        """Return the port of the slot's primary, according to this node."""
        for first, last, primary, *_ in self.run(node, "CLUSTER SLOTS"):
            _, port, *_ = primary
            if first <= slot <= last:
                return int(port)
        return None

    def move(
        self,
        slot: int,
        to: Server,
        *,
        on_half_moved: Callable[[], object] = lambda: None,
        on_keys_moved: Callable[[], object] = lambda: None,
    ) -> None:
        """Move the slot key by key, as redis-cli does. Meanwhile commands get TRYAGAIN or ASK.

        Args:
            slot: The slot.
            to: The node that gets the slot.
            on_half_moved: Called before the second half of the keys is moved. At that time,
                commands with all keys of a lock get TRYAGAIN.
            on_keys_moved: Called when all keys have moved, but the slot has not. At that time, all
                commands get ASK.
        """
        source = self.find_primary(slot)
        target_id = self._read_node_id(to)
        source_id = self._read_node_id(source)
        self.run(to, "CLUSTER SETSLOT", slot, "IMPORTING", source_id)
        self.run(source, "CLUSTER SETSLOT", slot, "MIGRATING", target_id)
        half_of_the_keys = self.run(source, "CLUSTER COUNTKEYSINSLOT", slot) // 2
        moved_count = 0
        # Repeated until no keys are left, because locks may add keys meanwhile.
        while keys := self.run(source, "CLUSTER GETKEYSINSLOT", slot, 1000):
            for key in keys:
                if moved_count == half_of_the_keys:
                    on_half_moved()
                database, timeout_ms = 0, 5000
                self.run(source, "MIGRATE", "127.0.0.1", to.port, key, database, timeout_ms)
                moved_count += 1
        on_keys_moved()
        for node in (to, source):
            self.run(node, "CLUSTER SETSLOT", slot, "NODE", target_id)

    def remove_node(self, node: Server, to: Server) -> None:
        """Give the slots of `node` to `to`, and remove `node` from the cluster.

        `node` must have no keys. Its server keeps running.
        """
        first_slot, last_slot = next(
            (first, last)
            for first, last, primary, *_ in self.run(node, "CLUSTER SLOTS")
            if int(primary[1]) == node.port
        )
        removed_id = self._read_node_id(node)
        target_id = self._read_node_id(to)
        self.nodes.remove(node)
        # Otherwise the node would become a replica when it has lost its slots.
        self.run(node, "CONFIG SET", "cluster-allow-replica-migration", "no")
        with to.make_client().pipeline(transaction=False) as pipe:
            for slot in range(first_slot, last_slot + 1):
                pipe.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
            pipe.execute()
        self.run(to, "CLUSTER BUMPEPOCH")  # the claim with the highest epoch wins
        eventually(
            lambda: all(
                self._find_primary_port(other, first_slot) == to.port for other in self.nodes
            )
        )
        for remaining_node in self.nodes:
            self.run(remaining_node, "CLUSTER FORGET", removed_id)
        self.run(node, "FLUSHALL")  # a primary with keys refuses CLUSTER RESET
        self.run(node, "CLUSTER RESET")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def _form_cluster(self, primaries: int) -> None:
        """Form a cluster of the nodes.

        The first nodes become the primaries and share the slots. The others become their replicas.
        """
        for number, node in enumerate(self.nodes):
            self.run(node, "CLUSTER SET-CONFIG-EPOCH", number + 1)
            if number < primaries:
                first_slot = SLOT_COUNT * number // primaries
                last_slot = SLOT_COUNT * (number + 1) // primaries - 1
                self.run(node, "CLUSTER ADDSLOTSRANGE", first_slot, last_slot)
            earlier_ports = self._bus_ports[:number]
            for earlier_node, bus_port in zip(self.nodes[:number], earlier_ports, strict=True):
                self.run(node, "CLUSTER MEET", "127.0.0.1", earlier_node.port, bus_port)
        node_count = str(len(self.nodes))
        eventually(lambda: self._all_report("cluster_known_nodes", node_count), within=20)
        for number, node in enumerate(self.nodes[primaries:]):
            self.run(node, "CLUSTER REPLICATE", self._read_node_id(self.nodes[number % primaries]))
            eventually(partial(self._is_in_sync, node), within=20)
        eventually(lambda: self._all_report("cluster_state", "ok"), within=20)

    def _is_in_sync(self, replica: Server) -> bool:
        replication = self.run(replica, "INFO", "replication")
        return bool(replication.get("master_link_status") == "up")

    def _all_report(self, field: str, value: str) -> bool:
        return all(self.run(node, "CLUSTER INFO")[field] == value for node in self.nodes)

    def _read_node_id(self, node: Server) -> str:
        return str(self.run(node, "CLUSTER MYID"))
