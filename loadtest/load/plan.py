"""What a load run does: the command writes it, its Locust and the figures read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadtest.stack.node import StackError

#: The most clients, and the most buyers of the open model who wait for an answer at a time.
MOST_CLIENTS = 2_000
#: The most seconds of one measurement, and the most arrivals in a second.
MOST_SECONDS, MOST_ARRIVALS = 600.0, 5_000
#: Seconds that purchases which are under way have after the end to get their last answer.
DRAIN = 60
#: How the times between arrivals are drawn.
EXPONENTIAL, CONSTANT = "exponential", "constant"
#: The addresses that may be loaded. There is no option for others.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Without --lock: no lock, then three that are exact and wait in different places.
LOCKS = ("none", "row-lock", "conditional", "redis")
#: Threads of a worker in the open model, and the most that the closed one gives it.
THREADS, MOST_THREADS = 100, 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The buyers who come, under each strategy alike.

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
    """

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
    locust_workers: int = 0
    seed: int = 1

    def demand(self) -> dict[str, Any]:
        """These fields alone, by name."""
        return {field.name: getattr(self, field.name) for field in fields(Demand)}


@dataclass(frozen=True, slots=True)
class Chosen(Demand):
    """What `python -m loadtest load` is asked for.

    workers  processes of each node
    threads  of each worker; 0: enough for the clients of the closed model, else THREADS
    """

    locks: Sequence[str] = LOCKS
    nodes: int = 2
    workers: int = 2
    threads: int = 0
    rounds: int = 1

    def __post_init__(self) -> None:
        if self.stock < 1:
            raise StackError("nothing is sold from an empty shop: give --stock 1 or more")
        if not self.arrivals_per_second and self.clients < self.locust_workers:
            raise StackError(
                f"{self.clients} clients cannot be shared by {self.locust_workers} processes: give "
                "fewer --locust-workers"
            )

    @property
    def threads_each(self) -> int:
        """Threads of each worker. A node's clients may all meet the same one."""
        if self.threads or self.arrivals_per_second:
            return self.threads or THREADS
        return min(MOST_THREADS, max(1, ceil(self.clients / self.nodes)))


@dataclass(frozen=True, slots=True)
class Plan(Demand):
    """One strategy, loaded once.

    id      what the Idempotency-Keys begin with
    names   the products
    sales   the number of each product's sale
    hosts   the addresses of the nodes
    pids    the processes of each part of the shop, for its processor time; a part that is missing
            is not measured
    """

    id: str
    lock: str
    names: Sequence[str]
    sales: Sequence[int]
    hosts: Sequence[str]
    pids: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.arrivals_per_second > 0

    @property
    def shares(self) -> int:
        """How many processes make the load."""
        return max(1, self.locust_workers)

    @property
    def users(self) -> int:
        """How many of Locust's users there are: clients, or one arrival process in each worker."""
        return self.shares if self.is_open else self.clients

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def read(path: Path) -> Plan:
    """The plan in a file. Raises ValueError where it would load another machine than this one, or
    beyond the bounds."""
    plan = Plan(**json.loads(path.read_text()))
    foreign = [host for host in plan.hosts if urlsplit(host).hostname not in LOOPBACK]
    if foreign:
        raise ValueError(f"{foreign[0]} is not this machine: only 127.0.0.1 may be loaded")
    if max(plan.clients, plan.cap) > MOST_CLIENTS or plan.seconds > MOST_SECONDS:
        raise ValueError(f"at most {MOST_CLIENTS} clients and {MOST_SECONDS:g} seconds")
    if plan.arrivals_per_second > MOST_ARRIVALS:
        raise ValueError(f"at most {MOST_ARRIVALS} arrivals a second")
    return plan
