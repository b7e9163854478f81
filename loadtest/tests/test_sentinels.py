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

LOCKS = ("redis", "token", "reentrant")
STOCK = 100_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[IO[bytes]]:
    with (tmp_path / "log").open("wb") as log:
        yield log


@dataclass
class Pair:
    """A master, its replica, and the Sentinels that watch them."""

    master: embedded.Valkey
    replica: embedded.Valkey
    sentinels: Sentinels

    def is_promoted(self) -> bool:
        with redis.Redis(port=self.replica.port) as client:
            return bool(client.role()[0] == b"master")


@pytest.fixture
def pair(tmp_path: Path, log: IO[bytes]) -> Iterator[Pair]:
    master = embedded.Valkey(tmp_path / "master")
    embedded.kill_at_exit(master.start())
    replica = embedded.Valkey(tmp_path / "replica", replica_of=("127.0.0.1", master.port))
    sentinels = Sentinels(tmp_path / "sentinels", master.port, log)
    try:
        embedded.kill_at_exit(replica.start())
        for pid in sentinels.start():
            embedded.kill_at_exit(pid)
        sentinels.wait_until_ready()
        yield Pair(master, replica, sentinels)
    finally:
        sentinels.stop()
        replica.stop()
        master.stop()


@pytest.fixture
def stack(pair: Pair, log: IO[bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """Start a node that finds its Redis only through the Sentinels."""
    monkeypatch.setenv("REDIS_URL", "redis://nowhere.invalid:1/0")
    monkeypatch.setenv("REDIS_SENTINELS", pair.sentinels.addresses)
    monkeypatch.setenv("SHOP_LOCK_TTL", "2")
    monkeypatch.setenv("SHOP_TOKEN_TTL", "2")
    monkeypatch.setenv("SHOP_LOCK_WAIT", "5")
    with Stack(count=1, workers=1, threads=16, log=log) as stack:
        yield stack


@pytest.fixture
def sales(stack: Stack) -> dict[str, int]:
    """Open a sale for each lock, of a product with the lock's name; return the sales' numbers."""
    shop = stack.shop()
    return {lock: int(shop.restock(product=lock, stock=STOCK)["sale"]) for lock in LOCKS}


@pytest.fixture
def crowds(stack: Stack, sales: dict[str, int]) -> Iterator[list[Customers]]:
    port = stack.nodes[0].port
    with ExitStack() as running:
        yield [running.enter_context(Customers(port, 3, product=lock, lock=lock)) for lock in sales]


def wait_for(outcome: str, count: int, crowds: list[Customers]) -> None:
    for crowd in crowds:
        crowd.wait_for(outcome, count)


def assert_the_books_balance(shop: Shop, sales: dict[str, int], crowds: list[Customers]) -> None:
    for crowd in crowds:
        crowd.__exit__()
        crowd.assert_sale_is_exact(shop, sales[crowd.lock])
        assert crowd.outcomes <= {"sold", "unavailable", "busy", "lost"}, crowd.lock


def test_no_unlocked_sale_while_a_master_is_replaced(
    pair: Pair, stack: Stack, sales: dict[str, int], crowds: list[Customers]
) -> None:
    """A shop that did not ask the Sentinels again would answer 503 forever.

    A shop that sold without a lock would sell while there is no master.
    """
    wait_for("sold", 10, crowds)
    pair.master.stop(signal.SIGKILL)
    killed = time.monotonic()
    wait_for("unavailable", 1, crowds)
    not_yet = time.monotonic()
    while not pair.is_promoted():
        not_yet = time.monotonic()
        assert not_yet < killed + 20, "no failover took place"
    wait_for("sold", 10, crowds)
    assert pair.sentinels.master() == ("127.0.0.1", pair.replica.port)
    for crowd in crowds:
        unlocked = [t for t in crowd.answers if killed < t[0] and t[1] < not_yet and t[2] == "sold"]
        assert unlocked == [], crowd.lock
    assert_the_books_balance(stack.shop(), sales, crowds)


def test_replaced_master_is_no_longer_used(
    pair: Pair, stack: Stack, sales: dict[str, int], crowds: list[Customers]
) -> None:
    parts = stack.shop().read_readyz()["parts"]
    detail = next(part["detail"] for part in parts if part["name"] == "Redis (locks)")
    assert detail.endswith("master 'shop' of the Sentinels")
    wait_for("sold", 10, crowds)
    with redis.Redis(port=pair.sentinels.ports[0]) as sentinel:
        sentinel.execute_command("SENTINEL", "FAILOVER", MASTER)
    eventually(pair.is_promoted, what="the replica is promoted", timeout=20)
    with redis.Redis(port=pair.master.port) as old:
        eventually(lambda: old.role()[0] == b"slave", what="the master is demoted", timeout=20)
    wait_for("sold", 10, crowds)
    fenced = [crowd for crowd in crowds if crowd.lock == "redis"]  # under others two may hold it
    assert_the_books_balance(stack.shop(), sales, fenced)


def test_sentinels_without_a_replica_say_what_to_do(
    tmp_path: Path, log: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servers.sentinels.START_TIMEOUT_SECONDS", 0.5)
    sentinels = Sentinels(tmp_path, 1, log)
    for pid in sentinels.start():
        embedded.kill_at_exit(pid)
    try:
        with pytest.raises(NotReady, match="start a replica of the master on port 1 first"):
            sentinels.wait_until_ready()
    finally:
        sentinels.stop()
    with pytest.raises(LookupError, match="knows a master"):
        sentinels.master()
