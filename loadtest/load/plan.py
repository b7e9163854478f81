"""The options of a load run, and the plan of the load on one strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

#: The highest --clients. In the open model, the maximum number of buyers who wait for an answer at
#: the same time.
MAX_CLIENTS = 2_000
#: The highest --seconds, which is the length of the measurement of one strategy in one round.
MAX_SECONDS = 600.0
#: The highest --arrivals-per-second.
MAX_ARRIVALS_PER_SECOND = 5_000
#: How long buyers buy before each measurement begins.
WARM_UP_SECONDS = 1.0
#: The strategies that are measured if --lock is not given: no lock, and three sound strategies.
#: Their buyers wait for a row lock, for the row at the UPDATE, and for a lock on Redis.
DEFAULT_LOCKS = ("none", "row-lock", "conditional", "redis")
#: Threads of a worker in the open model, in which the number of waiting buyers is not known before.
OPEN_MODEL_THREADS = 100
#: The most threads of a worker in the closed model.
MAX_CLOSED_MODEL_THREADS = 500


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The options of `python -m loadtest load`. Its --help explains the fields.

    The model is closed if arrivals_per_second is 0, and otherwise open. In the closed model each
    client waits for its answer before it buys again. In the open model buyers arrive at this rate.
    """

    locks: Sequence[str] = DEFAULT_LOCKS
    clients: int = 64
    arrivals_per_second: float = 0.0
    products: int = 1
    skew: float = 1.1
    stock: int = 20_000
    seconds: float = 10.0
    hold_ms: int = 0
    nodes: int = 2
    workers: int = 2
    locust_workers: int = 1
    rounds: int = 1

    @property
    def threads(self) -> int:
        """The number of threads of each worker.

        In the closed model, a worker needs a thread for each client of its node, because one worker
        may get the connections of all of them.
        """
        if self.arrivals_per_second:
            return OPEN_MODEL_THREADS
        clients_of_a_node = ceil(self.clients / self.nodes)
        return min(MAX_CLOSED_MODEL_THREADS, max(1, clients_of_a_node))

    @property
    def users(self) -> int:
        """The number of Locust's users: one per client, or in the open model one per process."""
        if self.arrivals_per_second:
            return self.locust_workers
        return self.clients


@dataclass(frozen=True, kw_only=True)
class LoadPlan(LoadOptions):
    """The load on one strategy in one round.

    id     the prefix of the Idempotency-Keys
    lock   the strategy
    sales  the number of each product's sale, by product
    hosts  the addresses of the nodes
    pids   the ids of the processes whose processor time is measured, by part of the system
    """

    id: str
    lock: str
    sales: Mapping[str, int]
    hosts: Sequence[str]
    pids: Mapping[str, Sequence[int]]
