"""A real gunicorn node: PostgreSQL restarts, and the node itself is stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from servers.postgres import Postgres
from servers.valkey import Valkey
from shop.tests.node import BEARER, Node, node_at
from shop.tests.till import eventually


@pytest.fixture(scope="module")
def node(folder: Path, postgres: Postgres, valkey: Valkey) -> Iterator[Node]:
    with node_at(folder / "node.log", postgres=postgres, valkey=valkey) as node:
        yield node


@pytest.mark.parametrize(
    ("method", "path", "body", "good"),
    [
        ("POST", "/buy", b'{"buyer": "ada", "lock": "redis"}', 201),
        ("POST", "/restock", b'{"stock": 5}', 201),
        ("GET", "/sales/latest", b"", 200),
    ],
)
def test_a_restart_of_postgresql_costs_one_refusal_and_not_one_per_connection(
    node: Node, postgres: Postgres, method: str, path: str, body: bytes, good: int
) -> None:
    """Every connection in the pool is dead then; the first one to meet one throws out all."""
    node.restock(20)
    postgres.stop()
    postgres.start()
    answers = [node.ask(method, path, body, BEARER)[0] for _ in range(10)]
    assert answers == [503] + [good] * 9


def test_a_restart_of_postgresql_is_over_for_a_probe_when_it_looks_again(
    node: Node, postgres: Postgres
) -> None:
    assert node.get("/readyz")[0] == 200
    postgres.stop()
    postgres.start()
    eventually(lambda: node.get("/readyz")[0] == 503, what="its connections are dead", timeout=5)
    eventually(lambda: node.get("/readyz")[0] == 200, what="it is ready", timeout=5)


def test_a_node_that_is_stopping_says_so_to_a_probe_that_it_has_accepted(
    folder: Path, valkey: Valkey
) -> None:
    """A load balancer that still asks must send nobody else. One thread, which a buyer has."""
    log = folder / "stopping.log"
    with (
        node_at(log, valkey=valkey, WEB_THREADS="1") as node,
        ThreadPoolExecutor(2) as pool,
        redis.Redis(port=valkey.port, db=1) as client,
    ):
        node.restock(1)
        buying = pool.submit(
            node.ask, "POST", "/buy", b'{"buyer": "ada", "lock": "redis", "hold_ms": 1500}'
        )
        eventually(lambda: client.exists("lock:{redis:apple}"), what="the buyer is inside")
        asked = pool.submit(node.get, "/readyz")
        time.sleep(0.5)  # it is accepted, and waits for the thread
        node.process.send_signal(signal.SIGTERM)
        assert buying.result(20)[0] == 201
        assert asked.result(20) == (503, {"status": "stopping"})
