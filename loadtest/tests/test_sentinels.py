"""The shop behind three real Sentinels: the master dies or is replaced, and the shop sells on."""

from __future__ import annotations

import itertools
import json
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import IO

import pytest
import redis

from loadtest.stack.client import Shop
from loadtest.stack.stack import Stack
from servers import embedded
from servers.sentinels import MASTER, Sentinels
from servers.tests.proxied import eventually

LOCKS = ("redis", "token", "reentrant")
STOCK = 100_000
#: Seconds between two requests of a buyer: enough are under way, and the machine is not busy.
PACE = 0.03


@pytest.fixture
def log(tmp_path: Path) -> Iterator[IO[bytes]]:
    with (tmp_path / "log").open("wb") as log:
        yield log


@dataclass
class Pair:
    """A master, its replica and the Sentinels that watch them."""

    master: embedded.Valkey
    replica: embedded.Valkey
    sentinels: Sentinels

    def is_promoted(self) -> bool:
        with redis.Redis(port=self.replica.port) as client:
            return bool(client.role()[0] == b"master")


@pytest.fixture
def pair(tmp_path: Path, log: IO[bytes]) -> Iterator[Pair]:
    master = embedded.Valkey(tmp_path / "master")
    embedded.adopt(master.start())
    replica = embedded.Valkey(tmp_path / "replica", replica_of=("127.0.0.1", master.port))
    sentinels = Sentinels(tmp_path / "sentinels", master.port, log)
    try:
        embedded.adopt(replica.start())
        for pid in sentinels.start():
            embedded.adopt(pid)
        sentinels.wait_until_ready()
        yield Pair(master, replica, sentinels)
    finally:
        sentinels.stop()
        replica.stop()
        master.stop()


@pytest.fixture
def stack(pair: Pair, log: IO[bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A node that finds its Redis through the Sentinels only."""
    monkeypatch.setenv("REDIS_URL", "redis://nowhere.invalid:1/0")
    monkeypatch.setenv("REDIS_SENTINELS", pair.sentinels.urls)
    monkeypatch.setenv("SHOP_LOCK_TTL", "2")
    monkeypatch.setenv("SHOP_TOKEN_TTL", "2")
    monkeypatch.setenv("SHOP_LOCK_WAIT", "5")
    with Stack(nodes=1, workers=1, threads=16, log=log) as stack:
        yield stack


@dataclass
class Crowd:
    """Buyers in threads who buy without end under one lock; each lock has its own product."""

    stack: Stack
    lock: str
    size: int = 3
    #: asked at, answered at (monotonic seconds), outcome
    answers: list[tuple[float, float, str]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def open(self) -> None:
        sale = self.stack.shop().restock(product=self.lock, stock=STOCK)
        self.sale = int(sale["sale"])
        self.threads = [threading.Thread(target=self._buy, args=(n,)) for n in range(self.size)]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        self.enough.set()
        for thread in self.threads:
            thread.join(30)

    def has(self, outcome: str, more: int, since: float) -> bool:
        """Whether so many requests sent after `since` got this outcome, or something went wrong."""
        count = sum(asked > since and got == outcome for asked, _, got in list(self.answers))
        return count >= more or bool(self.broken)

    def _buy(self, number: int) -> None:
        body = json.dumps({"buyer": f"b{number}", "lock": self.lock, "product": self.lock})
        for purchase in itertools.count():
            key = f"{self.lock}-{self.sale}-{number}-{purchase}"
            outcome = ""
            while outcome != "sold":
                if self.enough.wait(PACE) or self.broken:
                    return
                asked = time.monotonic()
                status, outcome = self._ask(body, key)
                self.answers.append((asked, time.monotonic(), outcome))
                if status not in (200, 201, 503):
                    self.broken.append(f"{status} {outcome}")

    def _ask(self, body: str, key: str) -> tuple[int, str]:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        asked = HTTPConnection("127.0.0.1", self.stack.nodes[0].port, timeout=30)
        try:
            asked.request("POST", "/buy", body, headers)
            response = asked.getresponse()
            return response.status, str(json.loads(response.read())["outcome"])
        finally:
            asked.close()


@pytest.fixture
def crowds(stack: Stack) -> Iterator[list[Crowd]]:
    crowds = [Crowd(stack, lock) for lock in LOCKS]
    try:
        for crowd in crowds:
            crowd.open()
        yield crowds
    finally:
        for crowd in crowds:
            crowd.close()


def wait_for(outcome: str, more: int, crowds: list[Crowd]) -> None:
    """Wait until so many requests under every lock, sent from now on, got this outcome."""
    since = time.monotonic()
    for crowd in crowds:
        eventually(
            partial(crowd.has, outcome, more, since),
            what=f"{more} under {crowd.lock} are answered {outcome}; so far {crowd.answers[-5:]}",
            timeout=30,
        )
        assert not crowd.broken


def assert_the_books_balance(shop: Shop, crowds: list[Crowd]) -> None:
    for crowd in crowds:
        crowd.close()
        report = shop.sale(crowd.sale)
        sold = sum(outcome == "sold" for _, _, outcome in crowd.answers)
        assert report["lost_updates"] == 0, crowd.lock
        assert report["orders"] >= sold, crowd.lock
        outcomes = {outcome for _, _, outcome in crowd.answers}
        assert outcomes <= {"sold", "unavailable", "busy", "lost"}, crowd.lock


def test_a_master_that_dies_is_replaced_and_nothing_is_sold_unlocked_meanwhile(
    pair: Pair, stack: Stack, crowds: list[Crowd]
) -> None:
    """If it did not ask the Sentinels again, the shop would answer 503 forever; if it sold without
    a lock, it would sell while there is no master."""
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
    assert_the_books_balance(stack.shop(), crowds)


def test_a_master_that_is_replaced_alive_is_used_no_more(
    pair: Pair, stack: Stack, crowds: list[Crowd]
) -> None:
    wait_for("sold", 10, crowds)
    with redis.Redis(port=pair.sentinels.ports[0]) as sentinel:
        sentinel.execute_command("SENTINEL", "FAILOVER", MASTER)
    eventually(pair.is_promoted, what="the replica is promoted", timeout=20)
    with redis.Redis(port=pair.master.port) as old:
        eventually(lambda: old.role()[0] == b"slave", what="the master is demoted", timeout=20)
    wait_for("sold", 10, crowds)
    fenced = [
        crowd for crowd in crowds if crowd.lock == "redis"
    ]  # under the other locks two may hold it
    assert_the_books_balance(stack.shop(), fenced)


def test_readyz_names_the_master_that_the_sentinels_gave(stack: Stack) -> None:
    parts = stack.shop().ready()["parts"]
    said = next(part["detail"] for part in parts if part["name"] == "Redis (locks)")
    assert said.endswith("master 'shop' of the Sentinels")


def test_sentinels_without_a_replica_say_what_to_do(
    tmp_path: Path, log: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servers.sentinels.START_TIMEOUT", 0.5)
    sentinels = Sentinels(tmp_path, 1, log)
    for pid in sentinels.start():
        embedded.adopt(pid)
    try:
        with pytest.raises(TimeoutError, match="start that replica first"):
            sentinels.wait_until_ready()
    finally:
        sentinels.stop()
    with pytest.raises(LookupError, match="no Sentinel answers"):
        sentinels.master()
