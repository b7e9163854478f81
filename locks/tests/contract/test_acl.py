"""On a cluster, the rights that the README names are enough, for threads and for asyncio."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ... import Release
from ...cluster.slots import slot_of
from ...sans_io.protocol import derive_keys
from ...testing.cluster import ClusterServers
from ...testing.server import eventually
from ..test_clients import README, acl_line
from ..waiting import is_free, waiter
from .conftest import CLUSTERED
from .doors import AnyLock, Door, clustered


def cluster_rules() -> list[str]:
    """Return the rules that a cluster needs besides acl_line()."""
    match = re.search(r"In a cluster add `(.*?)`", README)
    assert match is not None
    return match[1].split()


#: Subcommands of CLIENT, with which redis-py introduces itself: it takes no for an answer.
INTRODUCTION = "client"


def use(lock: AnyLock, cluster: ClusterServers, name: str) -> None:
    """Wait, be probed and woken, renew while the slot moves; the servers forget the scripts."""
    slot = slot_of(derive_keys(name)[0])
    home = cluster.owner(slot)
    elsewhere = next(node for node in cluster.nodes if node is not home)
    holder = lock.acquire(5)
    waiting = [waiter(lock, 20) for _ in range(2)]
    eventually(lambda: calls(cluster, "ping") > 0)
    for node in cluster.nodes:
        node.client().script_flush()
    assert holder.owned()
    assert holder.release() is Release.RELEASED
    second = waiting[0].result(10)
    before = second.deadline

    def renewed() -> None:
        eventually(lambda: second.deadline > before and calls(cluster, "asking") > 0)

    cluster.move(slot, elsewhere, arrived=renewed)
    second.check()
    assert second.release() is Release.RELEASED
    assert waiting[1].result(10).release() is Release.RELEASED
    assert lock.force_release() is False
    assert is_free(lock)
    cluster.move(slot, home)


def calls(cluster: ClusterServers, command: str) -> int:
    stats: Any = [node.client().info("commandstats") for node in cluster.nodes]
    return sum(node_stats.get(f"cmdstat_{command}", {}).get("calls", 0) for node_stats in stats)


def refused(cluster: ClusterServers) -> set[str]:
    """Return the commands that the nodes refused since the last reset."""
    logs = [node.client(decode_responses=True).acl_log() for node in cluster.nodes]
    refused_objects = {str(entry["object"]) for log in logs for entry in log}
    return {
        refused_object
        for refused_object in refused_objects
        if not refused_object.startswith(INTRODUCTION)
    }


@pytest.fixture(params=CLUSTERED)
def door(request: pytest.FixtureRequest, cluster: ClusterServers) -> Iterator[Door]:
    """Yield the door of a user with the rights of the README."""
    for node in cluster.nodes:
        run: Any = node.client().execute_command
        run("ACL", "SETUSER", "locks", "reset", "on", ">pw", *acl_line(), *cluster_rules())
        run("ACL", "LOG", "RESET")
        run("CONFIG", "RESETSTAT")
    door: Door = clustered(cluster.port, username="locks", password="pw")[request.param]()
    yield door
    door.close()
    for node in cluster.nodes:
        node.client().execute_command("ACL", "DELUSER", "locks")


@pytest.mark.usefixtures("_probed_at_once")
def test_acl_rights_suffice_on_a_cluster(door: Door, cluster: ClusterServers) -> None:
    use(door.lock("acl", ttl=2), cluster, "acl")
    assert refused(cluster) == set()
    for rule in set(cluster_rules()) - {"+command", "+cluster|slots"}:  # no word too many
        assert calls(cluster, rule[1:]) > 0, rule
