"""A process with buyers of a rush, as the process that opened the sale sees it."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import psutil
from locust.dispatch import UsersDispatcher
from locust.runners import WorkerNode

#: The only process, where Locust has no workers.
LOCAL = "local"


class Fixed(UsersDispatcher):
    """Locust's own dispatcher, without rebalancing: it would stop buyers in their purchase. A
    worker that joins has buyers from the next rush on; those of one that is lost may have bought.
    """

    def add_worker(self, worker_node: WorkerNode) -> None:
        """Nothing changes in this rush."""

    remove_worker = add_worker


@dataclass
class Member:
    """One process with buyers.

    id     Locust's name of it: the machine's name, and a random part
    first  its first buyer's number; it has every n-th from there on
    pid    its process; 0 before it says that it is here
    """

    id: str
    first: int
    count: int
    pid: int = 0
    arrived: bool = False
    reported: bool = False

    @property
    def machine(self) -> str:
        return self.id.rpartition("_")[0] or self.id

    @property
    def name(self) -> str:
        return f"worker {self.first} on {self.machine}"

    def has_ended(self) -> bool:
        """Whether a process of this machine is gone. Of another machine it is not known."""
        try:
            is_known = self.pid and self.machine == socket.gethostname()
            return bool(is_known) and psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
