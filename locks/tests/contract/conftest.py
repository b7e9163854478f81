"""Fixtures for tests of each kind of lock: a cluster, and a lock factory (lock_factories.py)."""

from collections.abc import Iterator

import pytest

from ...testing.cluster import ClusterServers
from ...testing.server import Server
from .lock_factories import LockFactory, make_cluster_factory, make_server_factory, yield_and_close


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterServers]:
    """A cluster of three primaries for all tests. A test that moves a slot must move it back."""
    cluster = ClusterServers()
    yield cluster
    cluster.stop()


#: The kinds of locks that use a cluster.
CLUSTER_LOCK_KINDS = ["cluster", "cluster, asyncio"]


@pytest.fixture(params=["threads", "asyncio", *CLUSTER_LOCK_KINDS])
def factory(request: pytest.FixtureRequest, server: Server) -> Iterator[LockFactory]:
    """Run the test with a factory of each kind of lock, on an empty server or cluster."""
    if request.param in CLUSTER_LOCK_KINDS:
        factory = make_cluster_factory(request.param, request.getfixturevalue("cluster").port)
    else:
        factory = make_server_factory(request.param, server.port)
    factory.admin_client.flushall()
    yield from yield_and_close(factory)
