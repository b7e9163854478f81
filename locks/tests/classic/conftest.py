"""Servers, clients and the hook for the points, for the tests of the articles' locks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import redis

from ...classic import points
from ...lock import Lock
from .kinds import KINDS, Backends
from .servers import Valkey, ZooKeeper, client_of, in_ci


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    server = Valkey(tmp_path_factory.mktemp("valkey"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Valkey]]:
    """Redlock's independent servers."""
    servers = [Valkey(tmp_path_factory.mktemp("redlock")) for _ in range(5)]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    pytest.importorskip("kazoo", reason="no kazoo here; pip install kazoo")
    if why := ZooKeeper.missing():
        if in_ci():
            pytest.fail(why)
        pytest.skip(why)
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def client(valkey: Valkey) -> Iterator[redis.Redis]:
    """A client of an empty server."""
    client = client_of(valkey.port)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def backends(request: pytest.FixtureRequest) -> Iterator[Backends]:
    """What the lock of the test's parameter `kind` needs, or one Valkey if there is none."""
    kind = request.node.callspec.params.get("kind", "") if hasattr(request.node, "callspec") else ""
    backends = Backends(request.getfixturevalue("valkey").port)
    if kind == "redlock":
        backends.ports = [server.port for server in request.getfixturevalue("five")]
    if kind == "zookeeper":
        backends.zookeeper_port = request.getfixturevalue("zookeeper").port
    yield backends
    backends.close()


Make = Callable[..., Lock]
_numbers = itertools.count()


@pytest.fixture
def make(backends: Backends) -> Make:
    """make("token", ttl=0.2): that lock, of a name that no other test has."""
    name = f"test-{next(_numbers)}"
    return lambda kind, ttl=5.0: KINDS[kind](backends, name, ttl)


@pytest.fixture
def hook() -> Iterator[Callable[[points.Hook | None], None]]:
    """hook(f): f is called at every point until the test ends."""
    yield points.install
    points.install(None)
