"""What `python -m loadtest load` is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from loadtest.load.plan import Demand
from loadtest.stack.stack import StackError

#: Without --lock: no lock, then three that are exact and wait in different places.
LOCKS = ("none", "row-lock", "conditional", "redis")
#: Threads of a worker in the open model, and the most that the closed one gives it.
THREADS, MOST_THREADS = 100, 500


@dataclass(frozen=True, slots=True)
class Chosen(Demand):
    """What is loaded, and how.

    stock    units of each product
    workers  processes of each node
    threads  of each worker; 0: enough for the clients of the closed model, else THREADS
    """

    locks: Sequence[str] = LOCKS
    stock: int = 20_000
    products: int = 1
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
