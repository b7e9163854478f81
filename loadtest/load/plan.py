"""What a load run does: the command writes it, its Locust and the figures read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from urllib.parse import urlsplit

from loadtest.stack.node import StackError

#: The most clients, and the most buyers of the open model who wait for an answer at a time.
MOST_CLIENTS = 2_000
#: The most seconds of one measurement, and the most arrivals in a second.
MOST_SECONDS, MOST_ARRIVALS = 600.0, 5_000
#: How the times between arrivals are drawn.
EXPONENTIAL, CONSTANT = "exponential", "constant"
#: The addresses that may be loaded. There is no option for others.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Without --lock: no lock, then three that are exact and wait in different places.
LOCKS = ("none", "row-lock", "conditional", "redis")
#: Threads of a worker in the open model, and the most that the closed one gives it.
THREADS, MOST_THREADS = 100, 500


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What `python -m loadtest load` is asked for.

    clients         of the closed model: each buys, waits for its answer and buys again
    arrivals_per_second  of the open model; 0 is the closed model
    arrivals        of the open model: EXPONENTIAL or CONSTANT times between arrivals
    cap             of the open model: the most buyers who may wait for an answer at a time
    products, skew  one hot product, or several; exponent of the Zipf distribution over them
    stock           units of each product
    seconds         how long is measured
    warm_up         seconds of selling before that
    hold_ms         milliseconds between check and decrement
    locust_workers  Locust's worker processes; 0: one process without workers
    workers         processes of each node
    threads         of each worker; 0: enough for the clients of the closed model, else THREADS
    """

    locks: Sequence[str] = LOCKS
    clients: int = 64
    arrivals_per_second: float = 0.0
    arrivals: str = EXPONENTIAL
    cap: int = MOST_CLIENTS
    products: int = 1
    skew: float = 1.1
    stock: int = 20_000
    seconds: float = 10.0
    warm_up: float = 1.0
    hold_ms: int = 0
    nodes: int = 2
    workers: int = 2
    threads: int = 0
    locust_workers: int = 0
    rounds: int = 1
    seed: int = 1

    @property
    def threads_each(self) -> int:
        """Threads of each worker. A node's clients may all meet the same one."""
        if self.threads or self.arrivals_per_second:
            return self.threads or THREADS
        return min(MOST_THREADS, max(1, ceil(self.clients / self.nodes)))

    @property
    def shares(self) -> int:
        """Number of processes that make the load."""
        return max(1, self.locust_workers)

    @property
    def users(self) -> int:
        """Number of Locust's users: clients, or one arrival process in each worker."""
        return self.shares if self.arrivals_per_second else self.clients

    def require_possible(self) -> None:
        """Raise StackError for what cannot be loaded."""
        if self.stock < 1:
            raise StackError("nothing is sold from an empty shop: give --stock 1 or more")
        if self.users < self.locust_workers:
            raise StackError(
                f"{self.clients} clients cannot be shared by {self.locust_workers} processes: give "
                "fewer --locust-workers"
            )


@dataclass(frozen=True, kw_only=True)
class Plan(Chosen):
    """One strategy, loaded once.

    id     what the Idempotency-Keys begin with
    sales  the number of each product's sale, by product
    hosts  the addresses of the nodes
    pids   the processes of each part of the shop, whose processor time is measured
    """

    id: str
    lock: str
    sales: Mapping[str, int]
    hosts: Sequence[str]
    pids: Mapping[str, Sequence[int]]


def read(path: Path) -> Plan:
    """The plan in a file. Raises ValueError where it would load another machine than this one."""
    plan = Plan(**json.loads(path.read_text()))
    for host in plan.hosts:
        if urlsplit(host).hostname not in LOOPBACK:
            raise ValueError(f"{host} is not this machine: only 127.0.0.1 may be loaded")
    return plan
