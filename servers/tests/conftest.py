"""Fixtures: a copy of the project, and a Valkey with a proxy in front of it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from servers import embedded
from servers.proxy.proxy import Proxy
from servers.tests.copy_of_project import ProjectCopy
from servers.valkey import client_at


@pytest.fixture(scope="session")
def project() -> Iterator[ProjectCopy]:
    """Yield a copy of the project, the same for all tests, because initdb is slow."""
    with tempfile.TemporaryDirectory(prefix="oversold-") as name:
        project = ProjectCopy(Path(name))
        yield project
        project.kill_processes()


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Valkey]:
    """Yield a Valkey server for the tests of one module."""
    server = embedded.Valkey(tmp_path_factory.mktemp("valkey"))
    embedded.kill_at_exit(server.start())
    yield server
    server.stop()


@pytest.fixture
def direct_client(valkey: embedded.Valkey) -> Iterator[redis.Redis]:
    """Empty Valkey, and yield a client that is connected to Valkey itself, not to the proxy."""
    with client_at(valkey.port) as client:
        client.flushall()
        yield client


@pytest.fixture
def proxy(valkey: embedded.Valkey) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", valkey.port)) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    """Yield a client that is connected to the proxy and waits 0.3 s for an answer."""
    with client_at(proxy.port, timeout=0.3) as client:
        yield client
