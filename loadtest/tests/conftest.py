from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from loadtest.tests.checkout import fresh_copy
from loadtest.tests.proxied import SILENCE, client_at
from servers import embedded
from servers.proxy.proxy import Proxy


@pytest.fixture
def clone() -> Iterator[Path]:
    """A fresh copy of the project. Not in tmp_path: other pytest runs tidy up there."""
    with tempfile.TemporaryDirectory(prefix="oversold-clone-") as folder:
        yield fresh_copy(Path(folder))


# --- the proxy, before a Valkey ---


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Valkey]:
    server = embedded.Valkey(tmp_path_factory.mktemp("valkey"), "--repl-diskless-sync-delay", "0")
    embedded.adopt(server.start())
    yield server
    server.stop()


@pytest.fixture
def direct(valkey: embedded.Valkey) -> Iterator[redis.Redis]:
    """A client beside the proxy."""
    with client_at(valkey.port) as client:
        client.flushall()
        yield client


@pytest.fixture
def proxy(valkey: embedded.Valkey) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", valkey.port), name="tests") as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    with client_at(proxy.port, timeout=SILENCE) as client:
        yield client
