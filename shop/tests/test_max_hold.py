"""A holder whose database hangs keeps everybody out for a stated time, and then sells nothing.

Its process lives, so its lease is renewed: without an end to that, for as long as the database is
silent.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from locks import RedisLock
from shop.ops.redis import locks_client
from shop.tests import servers
from shop.tests.node import Node, new_database
from shop.tests.till import eventually

TTL, MAX_HOLD, WAIT = 1.0, 2.0, 9.0
#: Seconds that a busy machine may add to the bound; far less than WAIT.
SLACK = 3.0


@pytest.fixture(scope="module")
def database() -> str:
    return new_database()


@pytest.fixture(scope="module")
def nodes(database: str) -> Iterator[list[Node]]:
    """A, whose backends are named in PostgreSQL, and B."""
    with tempfile.TemporaryDirectory(prefix="oversold-") as folder, ExitStack() as stack:
        yield [
            stack.enter_context(
                Node(
                    Path(folder) / f"{name}.log",
                    database_url=database,
                    redis_url=servers.valkey.url,
                    environment={
                        "PGAPPNAME": f"node-{name}",
                        "SHOP_LOCK_TTL": str(TTL),
                        "SHOP_LOCK_MAX_HOLD": str(MAX_HOLD),
                        "SHOP_LOCK_WAIT": str(WAIT),
                    },
                )
            )
            for name in "ab"
        ]


@pytest.fixture
def backends_of_a(database: str, nodes: list[Node]) -> Iterator[list[psutil.Process]]:
    """PostgreSQL's processes that serve node A; running again at the end of the test."""
    with psycopg.connect(database) as beside:
        rows = beside.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'node-a'"
        ).fetchall()
    backends = [psutil.Process(pid) for (pid,) in rows]
    assert backends
    yield backends
    for backend in backends:
        backend.resume()


def buy(node: Node, lock: str, buyer: str, **more: Any) -> tuple[int, dict[str, Any]]:
    return node.ask("POST", "/buy", json.dumps({"lock": lock, "buyer": buyer, **more}).encode())


@pytest.mark.parametrize("lock", ["redis", "fence-at-write"])
def test_others_sell_within_the_bound_and_the_late_holder_is_refused(
    nodes: list[Node], backends_of_a: list[psutil.Process], lock: str
) -> None:
    a, b = nodes
    sale = a.restock(6)
    assert buy(a, "row-lock", "first")[0] == 201  # else A looks for the product before it locks
    for backend in backends_of_a:
        backend.suspend()
    lock_of = RedisLock(locks_client(), f"{lock}:apple", ttl=TTL)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(buy, a, lock, "late")
        eventually(lambda: lock_of.inspect().owner is not None, what="A holds the lock")
        held_since = time.monotonic()
        status, sold = buy(b, lock, "next")
        took = time.monotonic() - held_since
        assert (status, sold["outcome"]) == (201, "sold"), sold
        assert MAX_HOLD - SLACK < took < MAX_HOLD + TTL + SLACK
        assert not late.done(), "A hangs still: the fault did fire"
        for backend in backends_of_a:
            backend.resume()
        status, answer = late.result(20)
    assert (status, answer["outcome"]) == (503, "lost")
    _, report = b.get(f"/sales/{sale}")
    assert (report["orders"], report["stock_left"], report["lost_updates"]) == (2, 4, 0)


def test_a_holder_that_works_is_renewed_for_longer_than_its_ttl(nodes: list[Node]) -> None:
    """As the fault `slow` has it."""
    a, b = nodes
    a.restock(5)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(partial(buy, a, "redis", "slow", hold_ms=round(TTL * 1500)))
        lock_of = RedisLock(locks_client(), "redis:apple", ttl=TTL)
        eventually(lambda: lock_of.inspect().owner is not None, what="A holds the lock")
        after = pool.submit(buy, b, "redis", "next")
        status, sold = slow.result(20)
        assert (status, sold["lock"]["released"]) == (201, "released")
        assert sold["lock"]["held_ms"] > TTL * 1000
        assert after.result(20)[1]["lock"]["fence"] > sold["lock"]["fence"]
