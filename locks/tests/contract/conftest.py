"""Fixture: one door at a time."""

from collections.abc import Iterator

import pytest

from ...testing.cluster import ClusterServers
from ...testing.server import Server
from .doors import Door, clustered, opened, single


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterServers]:
    """Three primaries, for tests that do them no harm, or move a slot."""
    cluster = ClusterServers()
    yield cluster
    cluster.stop()


#: Doors to a cluster.
CLUSTERED = ["cluster", "cluster, asyncio"]


@pytest.fixture(params=["threads", "asyncio", *CLUSTERED])
def door(request: pytest.FixtureRequest, server: Server) -> Iterator[Door]:
    if "cluster" in request.param:
        doors = clustered(request.getfixturevalue("cluster").port)
    else:
        doors = single(server.port)
    door: Door = doors[request.param]()
    door.admin.flushall()
    yield from opened(door)
