"""Fixtures: a cluster, and a factory of each kind of lock (lock_factories.py)."""

from collections.abc import Iterator

import pytest

from ...testing.cluster import ClusterServers
from ...testing.server import Server
from .lock_factories import LockFactory, make_cluster_factory, make_server_factory, yield_and_close


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterServers]:
    """A shared cluster of three primaries. A test that moves a slot must move it back."""
    cluster = ClusterServers()
    yield cluster
    cluster.stop()


#: The kinds of locks that use a cluster.
CLUSTER_LOCK_KINDS = ["cluster", "cluster, asyncio"]


@pytest.fixture(params=["threads", "asyncio", *CLUSTER_LOCK_KINDS])
def factory(request: pytest.FixtureRequest, server: Server) -> Iterator[LockFactory]:
    """A factory of each kind of lock in turn, for an empty server or an empty cluster."""
    if request.param in CLUSTER_LOCK_KINDS:
        factory = make_cluster_factory(request.param, request.getfixturevalue("cluster").port)
    else:
        factory = make_server_factory(request.param, server.port)
    factory.admin_client.flushall()
    yield from yield_and_close(factory)
