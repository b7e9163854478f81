"""The shop finds its Redis through three real Sentinels, which replace the master by a replica."""

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
STRATEGIES_WITH_REDIS_LOCK = ("redis", "token", "reentrant")
#: The units of each sale, more than the customers buy in a test.
STOCK = 100_000


@pytest.fixture
def server_log(tmp_path: Path) -> Iterator[IO[bytes]]:
    """Open a file for the output of the servers."""
    with (tmp_path / "log").open("wb") as server_log:
        yield server_log


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
def servers(tmp_path: Path, server_log: IO[bytes]) -> Iterator[RedisServers]:
    """Start a master, its replica and three Sentinels, and stop them after the test."""
    master = embedded.Valkey(tmp_path / "master")
    embedded.kill_at_exit(master.start())
    replica = embedded.Valkey(tmp_path / "replica", replica_of=("127.0.0.1", master.port))
    sentinels = Sentinels(tmp_path / "sentinels", master.port, server_log)
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
    servers: RedisServers, server_log: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stack]:
    """Start a node that can find its Redis only through the Sentinels: REDIS_URL is wrong.

    A lock expires after 2 s, and a request waits for its lock for at most 5 s.
    """
    monkeypatch.setenv("REDIS_URL", "redis://nowhere.invalid:1/0")
    monkeypatch.setenv("REDIS_SENTINELS", servers.sentinels.addresses)
    monkeypatch.setenv("SHOP_LOCK_TTL", "2")
    monkeypatch.setenv("SHOP_TOKEN_TTL", "2")
    monkeypatch.setenv("SHOP_LOCK_WAIT", "5")
    with Stack(node_count=1, workers=1, threads=16, log=server_log) as stack:
        yield stack


@pytest.fixture
def sales_by_strategy(stack: Stack) -> dict[str, int]:
    """Open a sale for each strategy. Return the number of each sale.

    The product of a sale has the name of the strategy.
    """
    shop = stack.shop()
    return {
        lock: int(shop.restock(product=lock, stock=STOCK)["sale"])
        for lock in STRATEGIES_WITH_REDIS_LOCK
    }


@pytest.fixture
def customer_groups(stack: Stack, sales_by_strategy: dict[str, int]) -> Iterator[list[Customers]]:
    """Start three customers for each strategy, who buy repeatedly until the end of the test."""
    port = stack.nodes[0].port
    with ExitStack() as exits:
        yield [
            exits.enter_context(Customers(port, 3, product=lock, lock=lock))
            for lock in sales_by_strategy
        ]


def wait_for_outcome(outcome: str, count: int, customer_groups: list[Customers]) -> None:
    """Wait until each group of customers got `count` more answers with this outcome."""
    for group in customer_groups:
        group.wait_for(outcome, count)


def stop_customers_and_check_orders(
    shop: Shop, sales_by_strategy: dict[str, int], customer_groups: list[Customers]
) -> None:
    """Stop the customers, and assert that each purchase has exactly one order in the right sale."""
    for group in customer_groups:
        group.stop()
        group.assert_sale_is_exact(shop, sales_by_strategy[group.lock])
        assert group.outcomes <= {"sold", "unavailable", "busy", "lost"}, group.lock


def test_no_unlocked_sale_while_a_master_is_replaced(
    servers: RedisServers,
    stack: Stack,
    sales_by_strategy: dict[str, int],
    customer_groups: list[Customers],
) -> None:
    """The master is killed. Until the Sentinels promote its replica, nothing may be sold.

    The test checks again and again whether the replica is promoted. A purchase certainly had no
    lock if it was sent after the kill and answered before the last check that found no master.
    """
    wait_for_outcome("sold", 10, customer_groups)
    servers.master.stop(signal.SIGKILL)
    killed_at = time.monotonic()
    wait_for_outcome("unavailable", 1, customer_groups)
    last_time_without_master = time.monotonic()
    while not servers.is_replica_promoted():
        last_time_without_master = time.monotonic()
        assert last_time_without_master < killed_at + 20, "no failover took place"
    wait_for_outcome("sold", 10, customer_groups)
    assert servers.sentinels.find_master() == ("127.0.0.1", servers.replica.port)
    for group in customer_groups:
        unlocked_sales = [
            (sent_at, answered_at)
            for sent_at, answered_at, outcome in group.answers
            if outcome == "sold" and killed_at < sent_at and answered_at < last_time_without_master
        ]
        assert unlocked_sales == [], group.lock
    stop_customers_and_check_orders(stack.shop(), sales_by_strategy, customer_groups)


def test_replaced_master_is_no_longer_used(
    servers: RedisServers,
    stack: Stack,
    sales_by_strategy: dict[str, int],
    customer_groups: list[Customers],
) -> None:
    """A Sentinel is told to start a failover to the replica, while the old master still runs."""
    parts = stack.shop().read_readyz()["parts"]
    detail = next(part["detail"] for part in parts if part["name"] == "Redis (locks)")
    assert detail.endswith("master 'shop' of the Sentinels")
    wait_for_outcome("sold", 10, customer_groups)
    with redis.Redis(port=servers.sentinels.ports[0]) as sentinel:
        sentinel.execute_command("SENTINEL", "FAILOVER", MASTER)
    eventually(servers.is_replica_promoted, what="the replica is promoted", timeout=20)
    with redis.Redis(port=servers.master.port) as old_master:
        eventually(
            lambda: old_master.role()[0] == b"slave", what="the master is demoted", timeout=20
        )
    wait_for_outcome("sold", 10, customer_groups)
    # During the failover two customers may have had the same lock at once. Only a lock with a fence
    # then prevents an oversell.
    groups_with_fence = [group for group in customer_groups if group.lock == "redis"]
    stop_customers_and_check_orders(stack.shop(), sales_by_strategy, groups_with_fence)


def test_error_of_sentinels_without_a_replica_has_advice(
    tmp_path: Path, server_log: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Sentinels watch port 1. No master runs there, so they never find a replica."""
    monkeypatch.setattr("servers.sentinels.START_TIMEOUT_SECONDS", 0.5)
    sentinels = Sentinels(tmp_path, 1, server_log)
    for pid in sentinels.start():
        embedded.kill_at_exit(pid)
    try:
        with pytest.raises(NotReady, match="start a replica of the master on port 1 first"):
            sentinels.wait_until_ready()
    finally:
        sentinels.stop()


def test_stopped_sentinels_find_no_master(tmp_path: Path, server_log: IO[bytes]) -> None:
    """find_master() asks each Sentinel for the address of the master. All of them are stopped."""
    sentinels = Sentinels(tmp_path, 1, server_log)
    for pid in sentinels.start():
        embedded.kill_at_exit(pid)
    sentinels.stop()
    with pytest.raises(LookupError, match=r"no Sentinel on .* knows a master"):
        sentinels.find_master()
