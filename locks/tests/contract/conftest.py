"""Fixture: one door at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ...testing.cluster import Cluster
from ...testing.server import Server
from .doors import Door, clustered, single


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries, for tests that do them no harm, or move a slot."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture(params=["threads", "asyncio", "cluster"])
def door(request: pytest.FixtureRequest, server: Server) -> Iterator[Door]:
    if "cluster" in request.param:
        doors = clustered(request.getfixturevalue("cluster").port)
    else:
        doors = single(server.port)
    door: Door = doors[request.param]()
    yield door
    door.close()
    door.admin.close()
