"""The fixtures of the doors."""

from collections.abc import Iterator

import pytest

from ...testing.cluster import ClusterServers
from ...testing.server import Server
from .doors import Door, make_cluster_doors, make_server_doors, yield_and_close


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
    if "cluster" in request.param:
        doors = make_cluster_doors(request.getfixturevalue("cluster").port)
    else:
        doors = make_server_doors(server.port)
    door: Door = doors[request.param]()
    door.admin.flushall()
    yield from yield_and_close(door)
