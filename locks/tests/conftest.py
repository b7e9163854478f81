"""Fixtures: a server, clients, a proxy, worker processes."""

from collections.abc import Callable, Iterator

import pytest
import redis

from .. import RedisLock, compat, wakeups
from ..aio import wakeups as aio_wakeups
from ..testing.server import LoopbackProxy, Server
from .waiting import StartWorker
from .worker import Worker


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    """The server that all tests share: see `server`."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    """The shared server, emptied. After the test, check that it left no key without a ttl."""
    with redis.Redis(port=shared_server.port) as client:
        client.flushall()
        yield shared_server
        keys_without_ttl = [key for key in client.scan_iter() if client.pttl(key) == -1]
    assert keys_without_ttl == []


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that only this test uses, so the test may kill, pause or restart it."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as client:
        yield client


@pytest.fixture
def lock(client: redis.Redis) -> RedisLock:
    """A lock named "tested" with a ttl of 30 s."""
    return RedisLock(client, "tested", ttl=30)


@pytest.fixture
def _frequent_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe each subscription after 0.1 s without a message, instead of 5 s.

    The probe of a subscription checks whether it is still alive, and on the right server.
    """
    for module in (wakeups, aio_wakeups):
        monkeypatch.setattr(module, "PROBE_SECONDS", 0.1)


@pytest.fixture
def proxy(server: Server) -> Iterator[LoopbackProxy]:
    """A proxy in front of the shared server, which can cut connections and lose replies."""
    with LoopbackProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def start_worker(server: Server) -> Iterator[StartWorker]:
    """A function that starts a worker: a process that uses the server, and can be killed."""
    workers: list[Worker] = []

    def start() -> Worker:
        workers.append(Worker(server.port))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()


@pytest.fixture
def make_compat_lock(client: redis.Redis) -> Iterator[Callable[..., compat.Lock]]:
    """A function that makes `compat.Lock`s named "job"."""
    yield lambda **options: compat.Lock(client, "job", **options)
    client.delete("job")  # a test may have set this key without a ttl
