"""Fixtures: a cluster, and the doors, each a kind of lock with a kind of client (doors.py)."""

from collections.abc import Iterator

import pytest

from ...testing.cluster import ClusterServers
from ...testing.server import Server
from .doors import Door, open_cluster_door, open_server_door, yield_and_close


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterServers]:
    """A shared cluster of three primaries. A test may move a slot, and moves it back."""
    cluster = ClusterServers()
    yield cluster
    cluster.stop()


#: The names of the doors to a cluster.
CLUSTER_DOORS = ["cluster", "cluster, asyncio"]


@pytest.fixture(params=["threads", "asyncio", *CLUSTER_DOORS])
def door(request: pytest.FixtureRequest, server: Server) -> Iterator[Door]:
    """Each door in turn, to a server or a cluster without data."""
    if request.param in CLUSTER_DOORS:
        door = open_cluster_door(request.param, request.getfixturevalue("cluster").port)
    else:
        door = open_server_door(request.param, server.port)
    door.admin.flushall()
    yield from yield_and_close(door)
