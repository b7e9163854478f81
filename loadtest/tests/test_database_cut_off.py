"""PostgreSQL out of reach for the node of a lock's holder: how long nobody else can buy."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs, urlsplit

import pytest
import redis

from loadtest.stack.client import Shop
from loadtest.stack.stack import Stack
from servers import embedded
from servers.proxy.proxy import Proxy
from servers.tests.proxied import eventually

#: Their watchdogs renew for a holder that only waits: nothing but the database's client ends it.
RENEWED = ["redis", "token-watchdog", "reentrant", "fence-at-write"]
#: Seconds: REPLY_TIMEOUT of shop/ops/postgres.py, which docs/running.md states as the bound ...
BOUND = 9.0
#: ... and for two slow cores.
SLACK = 4.0


class CutOffStack(Stack):
    """Node A reaches PostgreSQL through a proxy, node B directly."""

    def __init__(self, proxy: Proxy, log: IO[bytes]) -> None:
        super().__init__(nodes=2, workers=1, threads=16, log=log)
        self.proxy = proxy

    def shop(self, node: int = 0) -> Shop:
        return Shop(self.nodes[node].url, token=self.token, timeout=60)

    def _environment_of(self, number: int, environment: dict[str, str]) -> dict[str, str]:
        own = super()._environment_of(number, environment) | {"SHOP_DB_POOL": "6"}
        if number == 0:
            database = urlsplit(environment["DATABASE_URL"]).path
            own["DATABASE_URL"] = f"postgresql://postgres@{self.proxy.address}{database}"
        return own


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[CutOffStack]:
    embedded.attach()
    monkeypatch.delenv("REDIS_URL", raising=False)
    url = embedded.create_database("postgres", keep=True)  # is there: for its address
    server = Path(parse_qs(urlsplit(url).query)["host"][0]) / ".s.PGSQL.5432"
    with (
        tempfile.TemporaryFile() as log,
        Proxy(server) as proxy,
        CutOffStack(proxy, log) as stack,
    ):
        yield stack


def test_a_holder_whose_database_is_cut_off_keeps_nobody_out_beyond_the_reply_timeout(
    stack: CutOffStack,
) -> None:
    """Without it the holder waits for its reply, its watchdog renews, and the buyers of every
    other node are answered `busy` after 30 s."""
    for lock in RENEWED:
        stack.shop(1).restock(product=lock, stock=4)
        sold = stack.shop(0).buy(
            product=lock, lock=lock, buyer="first", key=f"{os.getpid()}-{lock}"
        )
        assert sold[0] == 201  # node A knows the product now, and does not look before it locks
    locks = redis.Redis(port=stack.valkeys[0].port, db=1)
    with ThreadPoolExecutor(2 * len(RENEWED)) as threads, locks:
        stack.proxy.black_hole()
        began = time.monotonic()

        def buy(node: int, lock: str) -> tuple[int, str, float]:
            status, body = stack.shop(node).buy(
                product=lock, lock=lock, buyer=f"node-{node}", key=f"{os.getpid()}-{node}-{lock}"
            )
            return status, body["outcome"], time.monotonic() - began

        cut_off = [threads.submit(buy, 0, lock) for lock in RENEWED]
        eventually(
            lambda: all(any(locks.scan_iter(f"*{lock}:{lock}*")) for lock in RENEWED),
            what="every lock is held by node A",
        )
        others = [threads.submit(buy, 1, lock) for lock in RENEWED]
        for lock, other, holder in zip(RENEWED, others, cut_off, strict=True):
            status, outcome, after = other.result(60)
            assert (status, outcome) == (201, "sold"), lock
            assert BOUND - 1 < after < BOUND + SLACK, f"{lock}: after {after:.1f} s"
            assert holder.result(60)[:2] == (503, "unavailable"), lock
    stack.proxy.pass_on()
    for lock in RENEWED:
        eventually(lambda lock=lock: buy(0, lock)[1] == "sold", what="node A sells again")  # type: ignore[misc]
