"""The shop behind three real Sentinels: the master dies or is replaced, and sales go on."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
import redis

from loadtest.stack.client import Shop
from loadtest.stack.stack import Stack
from loadtest.tests.raw_clients import Customers
from servers import embedded
from servers.sentinels import MASTER, Sentinels
from servers.server_errors import NotReady
from servers.tests.polling import eventually

#: Strategies whose locks are on Redis.
LOCKS = ("redis", "token", "reentrant")
#: More units than the customers buy in a test.
STOCK = 100_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[IO[bytes]]:
    with (tmp_path / "log").open("wb") as log:
        yield log


@dataclass
class RedisServers:
    """A master, its replica, and the Sentinels that watch them."""

    master: embedded.Valkey
    replica: embedded.Valkey
    sentinels: Sentinels

    def is_replica_promoted(self) -> bool:
        with redis.Redis(port=self.replica.port) as client:
            return bool(client.role()[0] == b"master")


@pytest.fixture
def servers(tmp_path: Path, log: IO[bytes]) -> Iterator[RedisServers]:
    """Start a master, its replica and three Sentinels, and stop them after the test."""
    master = embedded.Valkey(tmp_path / "master")
    embedded.kill_at_exit(master.start())
    replica = embedded.Valkey(tmp_path / "replica", replica_of=("127.0.0.1", master.port))
    sentinels = Sentinels(tmp_path / "sentinels", master.port, log)
    try:
        embedded.kill_at_exit(replica.start())
        for pid in sentinels.start():
            embedded.kill_at_exit(pid)
        sentinels.wait_until_ready()
        yield RedisServers(master, replica, sentinels)
    finally:
        sentinels.stop()
        replica.stop()
        master.stop()


@pytest.fixture
def stack(
    servers: RedisServers, log: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stack]:
    """Start a node that can find its Redis only through the Sentinels: REDIS_URL is wrong."""
    monkeypatch.setenv("REDIS_URL", "redis://nowhere.invalid:1/0")
    monkeypatch.setenv("REDIS_SENTINELS", servers.sentinels.addresses)
    monkeypatch.setenv("SHOP_LOCK_TTL", "2")
    monkeypatch.setenv("SHOP_TOKEN_TTL", "2")
    monkeypatch.setenv("SHOP_LOCK_WAIT", "5")
    with Stack(node_count=1, workers=1, threads=16, log=log) as stack:
        yield stack


@pytest.fixture
def sales(stack: Stack) -> dict[str, int]:
    """Open a sale for each strategy, of a product with its name. Return the sales' numbers."""
    shop = stack.shop()
    return {lock: int(shop.restock(product=lock, stock=STOCK)["sale"]) for lock in LOCKS}


@pytest.fixture
def groups(stack: Stack, sales: dict[str, int]) -> Iterator[list[Customers]]:
    """Start a group of three customers for each strategy, who buy until the end of the test."""
    port = stack.nodes[0].port
    with ExitStack() as exits:
        yield [exits.enter_context(Customers(port, 3, product=lock, lock=lock)) for lock in sales]


def wait_for_outcome(outcome: str, count: int, groups: list[Customers]) -> None:
    """Wait until each group has sent `count` more requests that have this outcome."""
    for group in groups:
        group.wait_for(outcome, count)


def stop_and_check_orders(shop: Shop, sales: dict[str, int], groups: list[Customers]) -> None:
    """Stop the customers, and assert that each purchase has exactly one order, in its own sale."""
    for group in groups:
        group.stop()
        group.assert_sale_is_exact(shop, sales[group.lock])
        assert group.outcomes <= {"sold", "unavailable", "busy", "lost"}, group.lock


def test_no_unlocked_sale_while_a_master_is_replaced(
    servers: RedisServers, stack: Stack, sales: dict[str, int], groups: list[Customers]
) -> None:
    """The master is killed, and the Sentinels promote its replica. Until then nothing may be sold.

    A purchase has no lock if it is sent after the kill and answered before the last moment at which
    the replica was seen not to be promoted.
    """
    wait_for_outcome("sold", 10, groups)
    servers.master.stop(signal.SIGKILL)
    killed_at = time.monotonic()
    wait_for_outcome("unavailable", 1, groups)
    last_seen_without_master = time.monotonic()
    while not servers.is_replica_promoted():
        last_seen_without_master = time.monotonic()
        assert last_seen_without_master < killed_at + 20, "no failover took place"
    wait_for_outcome("sold", 10, groups)
    assert servers.sentinels.find_master() == ("127.0.0.1", servers.replica.port)
    for group in groups:
        unlocked_sales = [
            (sent_at, answered_at)
            for sent_at, answered_at, outcome in group.answers
            if outcome == "sold" and killed_at < sent_at and answered_at < last_seen_without_master
        ]
        assert unlocked_sales == [], group.lock
    stop_and_check_orders(stack.shop(), sales, groups)


def test_replaced_master_is_no_longer_used(
    servers: RedisServers, stack: Stack, sales: dict[str, int], groups: list[Customers]
) -> None:
    """The Sentinels are told to make the replica the master, while the old master still runs."""
    parts = stack.shop().read_readyz()["parts"]
    detail = next(part["detail"] for part in parts if part["name"] == "Redis (locks)")
    assert detail.endswith("master 'shop' of the Sentinels")
    wait_for_outcome("sold", 10, groups)
    with redis.Redis(port=servers.sentinels.ports[0]) as sentinel:
        sentinel.execute_command("SENTINEL", "FAILOVER", MASTER)
    eventually(servers.is_replica_promoted, what="the replica is promoted", timeout=20)
    with redis.Redis(port=servers.master.port) as old_master:
        eventually(
            lambda: old_master.role()[0] == b"slave", what="the master is demoted", timeout=20
        )
    wait_for_outcome("sold", 10, groups)
    # During the change two customers may have held a lock at once. Only a fence prevents that both
    # sell the same unit.
    groups_with_fence = [group for group in groups if group.lock == "redis"]
    stop_and_check_orders(stack.shop(), sales, groups_with_fence)


def test_sentinels_without_a_replica_say_what_to_do(
    tmp_path: Path, log: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Sentinels watch a master at port 1, where there is none."""
    monkeypatch.setattr("servers.sentinels.START_TIMEOUT_SECONDS", 0.5)
    sentinels = Sentinels(tmp_path, 1, log)
    for pid in sentinels.start():
        embedded.kill_at_exit(pid)
    try:
        with pytest.raises(NotReady, match="start a replica of the master on port 1 first"):
            sentinels.wait_until_ready()
    finally:
        sentinels.stop()


def test_stopped_sentinels_name_no_master(tmp_path: Path, log: IO[bytes]) -> None:
    """The Sentinels are asked for the master after they were stopped."""
    sentinels = Sentinels(tmp_path, 1, log)
    for pid in sentinels.start():
        embedded.kill_at_exit(pid)
    sentinels.stop()
    with pytest.raises(LookupError, match=r"no Sentinel on .* knows a master"):
        sentinels.find_master()
