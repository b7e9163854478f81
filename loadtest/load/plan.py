"""What a load run does: the command writes it, its Locust and the figures read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

#: The most clients, and the most buyers of the open model who wait for an answer at a time.
MOST_CLIENTS = 2_000
#: The most seconds of one measurement, and the most arrivals in a second.
MOST_SECONDS, MOST_ARRIVALS = 600.0, 5_000
#: How the times between arrivals are drawn.
EXPONENTIAL, CONSTANT = "exponential", "constant"
#: Without --lock: no lock, then three that are exact and wait in different places.
LOCKS = ("none", "row-lock", "conditional", "redis")
#: Threads of a worker in the open model, and the most that the closed one gives it.
THREADS, MOST_THREADS = 100, 500


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What `python -m loadtest load` is asked for. Its options say what each field means.

    arrivals_per_second  0 is the closed model
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
    locust_workers: int = 1
    rounds: int = 1

    @property
    def threads(self) -> int:
        """Threads of each worker. A node's clients may all meet the same one."""
        if self.arrivals_per_second:
            return THREADS
        return min(MOST_THREADS, max(1, ceil(self.clients / self.nodes)))

    @property
    def users(self) -> int:
        """Number of Locust's users: clients, or one arrival process in each of its processes."""
        return self.locust_workers if self.arrivals_per_second else self.clients


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
