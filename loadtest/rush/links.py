"""The messages of Locust's master and its workers, as the gathering of buyers uses them.

Of the modules that gather buyers this one alone uses Locust's runners: the others run without them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import locust.runners
import zmq
from locust.env import Environment
from locust.exception import RPCError
from locust.rpc import Message
from locust.runners import STATE_MISSING, MasterRunner, WorkerNode, WorkerRunner
from locust.user import User

from loadtest.rush.dispatcher import FixedDispatcher

logger = logging.getLogger("loadtest")

#: Seconds without a heartbeat after which Locust takes a worker for lost. Its 3 are too few where
#: thousands of buyers begin at once; a process that ends is noticed at once by its connection.
LIVENESS = 20


def wait_longer_for_heartbeats() -> None:
    """Let Locust's master wait for LIVENESS. Call it before there is a runner: a worker that is
    known already has Locust's own limit until its first heartbeat."""
    locust.runners.HEARTBEAT_LIVENESS = LIVENESS


class MasterLink:
    """From the master to its workers. `ids`: those of the present run, in the order in which they
    get their users."""

    def __init__(self, environment: Environment) -> None:
        assert isinstance(environment.runner, MasterRunner)
        self.runner = environment.runner
        self.ids: list[str] = []
        environment.dispatcher_class = self._dispatcher  # type: ignore[assignment]  # makes one

    def _dispatcher(
        self, worker_nodes: list[WorkerNode], user_classes: list[type[User]]
    ) -> FixedDispatcher:
        made = FixedDispatcher(worker_nodes, user_classes)
        self.ids = made.members
        return made

    def listen(self, kind: str, hear: Callable[[str, dict[str, Any]], None]) -> None:
        """Call `hear` with the worker's id and the data of every message of this type."""
        self.runner.register_message(
            kind, lambda environment, msg, **_: hear(msg.node_id, msg.data)
        )

    def send(self, id: str, kind: str, data: dict[str, Any]) -> None:
        """Send a message to a worker. Nothing happens where it is gone."""
        self.runner.send_message(kind, data, id)

    def reach(self, id: str, kind: str, data: dict[str, Any]) -> bool:
        """Send a message to a worker. Returns whether it is connected and of this run.

        Locust notices a lost worker by its heartbeats alone, after many seconds. Its socket knows
        at once when a connection is gone, and says so to a sender that asks for it.
        """
        if not self.has(id):
            return False
        message: Any = Message  # it has no types
        frames = [id.encode(), message(kind, data, id).serialize()]
        socket = self.runner.server.socket
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        try:
            socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:  # connected, and busy
            return True
        except zmq.ZMQError:
            return False
        finally:
            socket.setsockopt(zmq.ROUTER_MANDATORY, 0)  # Locust's own messages go to lost ones too
        return True

    def is_missing(self, id: str) -> bool:
        """Whether Locust has waited in vain for its heartbeats."""
        client = self.runner.clients.get(id)
        return client is not None and client.state == STATE_MISSING

    def has(self, id: str) -> bool:
        """Whether a worker is connected, as far as Locust knows."""
        return id in self.runner.clients and not self.is_missing(id)

    def drop(self, id: str) -> None:
        """Forget a worker that is lost: Locust would wait for it at the end of the run."""
        self.runner.clients.pop(id, None)


class WorkerLink:
    """From a worker to its master."""

    def __init__(self, environment: Environment) -> None:
        assert isinstance(environment.runner, WorkerRunner)
        self.runner = environment.runner

    def listen(self, kind: str, hear: Callable[[dict[str, Any]], None]) -> None:
        """Call `hear` with the data of every message of this type."""
        self.runner.register_message(kind, lambda environment, msg, **_: hear(msg.data))

    def send(self, kind: str, data: dict[str, Any]) -> None:
        """Send a message. Where the master is gone the message is lost; Locust ends this process
        after a minute."""
        try:
            self.runner.send_message(kind, data)
        except RPCError as error:
            logger.warning("the master cannot be reached: %s", error)

    def send_figures(self) -> None:
        """Send Locust's own figures now. It does every 3 s, and a report that is saved after a rush
        would lack the last ones."""
        with suppress(RPCError):
            self.runner._send_stats()
