"""Which worker of Locust starts which users: fixed from the start of a run to its end."""

from __future__ import annotations

from locust.dispatch import UsersDispatcher
from locust.runners import WorkerNode
from locust.user import User


class FixedDispatcher(UsersDispatcher):
    """Locust's own dispatcher, without rebalancing.

    A worker that joins in a run would make Locust stop buyers in their purchase, to start them
    there: it has buyers from the next start on. The buyers of a worker that is lost are not started
    elsewhere: they may have bought.

    members  the ids of the workers, in the order in which they get their users, in turn
    """

    def __init__(self, worker_nodes: list[WorkerNode], user_classes: list[type[User]]) -> None:
        super().__init__(worker_nodes, user_classes)
        self.members = [node.id for node in self._worker_nodes]

    def add_worker(self, worker_node: WorkerNode) -> None:
        """Nothing changes in this run."""

    def remove_worker(self, worker_node: WorkerNode) -> None:
        """Nothing changes in this run."""
