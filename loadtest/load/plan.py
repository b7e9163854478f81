"""The options of a load run, and the plan of the load on one strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

#: The most clients, and the most buyers of the open model who wait for an answer at a time.
MAX_CLIENTS = 2_000
#: The highest --seconds, the length of one measurement: of one strategy in one round.
MAX_SECONDS = 600.0
#: The highest --arrivals-per-second.
MAX_ARRIVALS_PER_SECOND = 5_000
#: Time of selling before each measurement.
WARM_UP_SECONDS = 1.0
#: The strategies that are measured if --lock is not given: no lock, then three sound strategies,
#: whose buyers wait in different places.
DEFAULT_LOCKS = ("none", "row-lock", "conditional", "redis")
#: Threads of a worker in the open model, where the number of waiting buyers is not known before.
OPEN_MODEL_THREADS = 100
#: The most threads of a worker in the closed model.
MAX_CLOSED_MODEL_THREADS = 500


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The options of `python -m loadtest load`; its --help explains the fields.

    arrivals_per_second  0: the closed model
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
        """The number of threads of each worker. One worker may get all clients of its node."""
        if self.arrivals_per_second:
            return OPEN_MODEL_THREADS
        clients_of_a_node = ceil(self.clients / self.nodes)
        return min(MAX_CLOSED_MODEL_THREADS, max(1, clients_of_a_node))

    @property
    def users(self) -> int:
        """Number of Locust's users: the clients; in the open model one for each process."""
        if self.arrivals_per_second:
            return self.locust_workers
        return self.clients


@dataclass(frozen=True, kw_only=True)
class LoadPlan(LoadOptions):
    """The load on one strategy in one round.

    id     the prefix of the Idempotency-Keys
    sales  the number of each product's sale, by product
    hosts  the addresses of the nodes
    pids   the processes of each part of the shop, whose processor time is measured
    """

    id: str
    lock: str
    sales: Mapping[str, int]
    hosts: Sequence[str]
    pids: Mapping[str, Sequence[int]]
