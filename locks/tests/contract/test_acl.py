"""A test of the rights for a lock's user in the README, on a cluster.

The rights are sufficient, and each of those that only a cluster needs is necessary.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ... import Release
from ...cluster.slots import compute_slot
from ...sans_io.protocol import derive_keys
from ...testing.cluster import ClusterServers
from ...testing.server import eventually
from ..test_clients import README, read_acl_rules
from ..waiting import is_free, start_waiter
from .conftest import CLUSTER_LOCK_KINDS
from .lock_factories import AnyLock, LockFactory, make_cluster_factory


def read_cluster_rules() -> list[str]:
    """Return the ACL rules in the README that only a cluster needs."""
    match = re.search(r"In a cluster add `(.*?)`", README)
    assert match is not None
    return match[1].split()


#: redis-py sends its name to the server with CLIENT SETINFO, and ignores a refusal.
INTRODUCTION_COMMAND = "client"


def exercise_lock(lock: AnyLock, cluster: ClusterServers, name: str) -> None:
    """Use the lock in such a way that it sends each kind of command.

    It waits, probes its subscription, wakes a waiter and renews a lease. Meanwhile its slot moves,
    and the servers forget the scripts.
    """
    slot = compute_slot(derive_keys(name)[0])
    old_node = cluster.find_primary(slot)
    new_node = next(node for node in cluster.nodes if node is not old_node)
    lease = lock.acquire(5)
    waiters = [start_waiter(lock, 20) for _ in range(2)]
    eventually(lambda: count_calls(cluster, "ping") > 0)  # the subscription was probed
    for node in cluster.nodes:
        node.make_client().script_flush()
    assert lease.owned()
    assert lease.release() is Release.RELEASED
    next_lease = waiters[0].result(10)
    first_deadline = next_lease.deadline

    def wait_until_renewed() -> None:
        eventually(
            lambda: next_lease.deadline > first_deadline and count_calls(cluster, "asking") > 0
        )

    cluster.move(slot, new_node, on_keys_moved=wait_until_renewed)
    next_lease.check()
    assert next_lease.release() is Release.RELEASED
    assert waiters[1].result(10).release() is Release.RELEASED
    assert lock.force_release() is False  # the lock was free, but the command was allowed
    assert is_free(lock)
    cluster.move(slot, old_node)


def count_calls(cluster: ClusterServers, command: str) -> int:
    """Return how often all nodes together have run the command since this test began."""
    stats: Any = [node.make_client().info("commandstats") for node in cluster.nodes]
    return sum(node_stats.get(f"cmdstat_{command}", {}).get("calls", 0) for node_stats in stats)


def find_refused_objects(cluster: ClusterServers) -> set[str]:
    """Return the commands, keys and channels that the nodes have refused since this test began.

    A refusal of INTRODUCTION_COMMAND is left out, because it has no effect.
    """
    logs = [node.make_client(decode_responses=True).acl_log() for node in cluster.nodes]
    refused_objects = {str(entry["object"]) for log in logs for entry in log}
    return {
        refused_object
        for refused_object in refused_objects
        if not refused_object.startswith(INTRODUCTION_COMMAND)
    }


@pytest.fixture(params=CLUSTER_LOCK_KINDS)
def factory(request: pytest.FixtureRequest, cluster: ClusterServers) -> Iterator[LockFactory]:
    """A factory of cluster locks. The user of its client has the rights in the README only."""
    rules = [*read_acl_rules(), *read_cluster_rules()]
    for node in cluster.nodes:
        run: Any = node.make_client().execute_command
        run("ACL", "SETUSER", "locks", "reset", "on", ">pw", *rules)
        run("ACL", "LOG", "RESET")
        run("CONFIG", "RESETSTAT")
    factory = make_cluster_factory(request.param, cluster.port, username="locks", password="pw")
    yield factory
    factory.close()
    for node in cluster.nodes:
        node.make_client().execute_command("ACL", "DELUSER", "locks")


@pytest.mark.usefixtures("_frequent_probes")
def test_acl_rights_suffice_on_a_cluster(factory: LockFactory, cluster: ClusterServers) -> None:
    """The rights in the README allow every command of a lock, and each right is needed."""
    exercise_lock(factory.make_lock("acl", ttl=2), cluster, "acl")
    assert find_refused_objects(cluster) == set()
    # Each rule is necessary: its command was called. Two rules are left out, because redis-py
    # itself needs COMMAND, and this test sends CLUSTER SLOTS as well.
    for rule in set(read_cluster_rules()) - {"+command", "+cluster|slots"}:
        assert count_calls(cluster, rule[1:]) > 0, rule
