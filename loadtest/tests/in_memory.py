"""Locust's messages without Locust: a master and workers in one process, each with a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent
import msgpack

from loadtest.judge.verdict import Reply
from loadtest.rush.clock import machine
from loadtest.rush.crowd import Crowd
from loadtest.rush.master import Workers
from loadtest.rush.measure import Interval
from loadtest.rush.rush import Rush
from loadtest.rush.worker import Worker
from loadtest.target import Answer, Order, Target, sold_out
from loadtest.target.target import Orders


class Empty(Target):
    """A shop that has nothing to sell; the test says what its buyers are answered."""

    name = "empty"
    repeatable = True

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9")
        self.shown: list[Order] = []

    def open(self, stock: int) -> None:
        self.ticket = f"for {stock}"

    def read(self, response: Any) -> Answer:
        return sold_out()

    def buy(self, buyer: Any) -> None:
        """Nothing: no test sends a request."""

    def orders(self) -> Orders:
        return self.shown


class Net:
    """Messages between one master and its workers, delivered at once, as msgpack brings them.

    cut    workers whose connection is gone
    deaf   workers that hear nothing, and whose connection is there
    """

    def __init__(self, count: int) -> None:
        self.ids = [f"host_{number}" for number in range(count)]
        self.to_master: dict[str, Callable[[str, dict[str, Any]], None]] = {}
        self.to_worker: dict[tuple[str, str], Callable[[dict[str, Any]], None]] = {}
        self.cut: set[str] = set()
        self.deaf: set[str] = set()
        self.sent: list[tuple[str, str]] = []

    # The master's link.

    def listen(self, kind: str, hear: Callable[[str, dict[str, Any]], None]) -> None:
        self.to_master[kind] = hear

    def send(self, id: str, kind: str, data: dict[str, Any]) -> None:
        self.sent.append((id, kind))
        hear = self.to_worker.get((id, kind))
        if (
            hear is not None and id not in self.cut | self.deaf
        ):  # Locust, too, drops what is unknown
            hear(_sent(data))

    def reach(self, id: str, kind: str, data: dict[str, Any]) -> bool:
        if id not in self.cut:
            self.send(id, kind, data)
        return id not in self.cut

    def has(self, id: str) -> bool:
        return id not in self.cut

    def is_missing(self, id: str) -> bool:
        return id in self.deaf

    def drop(self, id: str) -> None:
        self.cut.add(id)


class WorkerEnd:
    def __init__(self, net: Net, id: str) -> None:
        self.net, self.id = net, id

    def listen(self, kind: str, hear: Callable[[dict[str, Any]], None]) -> None:
        self.net.to_worker[self.id, kind] = hear

    def send(self, kind: str, data: dict[str, Any]) -> None:
        if self.id not in self.net.cut:
            self.net.to_master[kind](self.id, _sent(data))

    def send_figures(self) -> None:
        """Locust's alone."""


def _sent(data: dict[str, Any]) -> dict[str, Any]:
    return dict(msgpack.loads(msgpack.dumps(data)))


class Staged:
    """A rush of `buyers` in `count` workers; nobody has arrived."""

    def __init__(self, count: int, buyers: int, *, deadline_s: float = 60.0) -> None:
        self.net = Net(count)
        self.gathering = Workers(self.net, lambda: {"host": "http://127.0.0.1:9"})
        self.workers = [
            Worker(WorkerEnd(self.net, id), lambda told: Empty()) for id in self.net.ids
        ]
        self.buyers, self.deadline_s = buyers, deadline_s
        self.rush = self.another()

    def another(self) -> Rush:
        self.rush = Rush(
            target=Empty(), buyers=self.buyers, stock=2, deadline_s=self.deadline_s,
            gathering=self.gathering,
        )  # fmt: skip
        self.rush.open_sale()
        return self.rush

    def crowd(self, worker: int) -> Crowd:
        crowd = self.workers[worker].crowd
        assert crowd is not None
        return crowd


def arrive(crowd: Crowd, *numbers: int) -> list[gevent.Greenlet]:
    """These buyers wait at the barrier, ask, and are answered that nothing is left."""

    def buy(number: int) -> None:
        crowd.arrive()
        if crowd.closed:
            return
        key, sent = crowd.key(number), time.monotonic()
        crowd.ask(key).answer("sold_out", {})
        crowd.leave(Reply(key, "sold_out"), Interval(sent, sent, time.monotonic()))

    return [gevent.spawn(buy, number) for number in numbers]


def wait(staged: Staged, *, seconds: float = 10) -> None:
    assert staged.rush.finished.wait(seconds), "the rush did not end"
    gevent.sleep(0)


__all__ = ["Empty", "Net", "Staged", "WorkerEnd", "arrive", "machine", "wait"]
