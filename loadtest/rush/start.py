"""What a Locust of this load test is: one that opens sales, one with buyers, or both."""

from __future__ import annotations

import gc
import logging
import sys
from typing import Any

import locust.runners
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadtest.rush.conductor import Conductor, sentence
from loadtest.rush.crowd import Crowd, Here
from loadtest.rush.options import add_arguments, permissions, target_of
from loadtest.target.errors import TargetError
from servers.loopback import ask_loopback_directly

__all__ = ["Rushes", "add_arguments"]

logger = logging.getLogger("loadtest")

#: Seconds without a heartbeat after which Locust takes a worker for lost. Its 3 are too few where
#: thousands of buyers begin at once. A worker keeps the limit that held when it connected.
locust.runners.HEARTBEAT_LIVENESS = 20


class Rushes:
    """The rushes of one Locust, one after the other.

    here       the buyers of this process; None in a master
    conductor  opens the sales; None in a worker
    """

    here: Here | None = None
    conductor: Conductor | None = None

    def set_up(self, environment: Environment) -> None:
        """Ends the process with 2 where the target cannot be used."""
        ask_loopback_directly()
        options: Any = environment.parsed_options
        token, options.restock_token = options.restock_token, ""  # Locust sends options to workers
        if not isinstance(environment.runner, MasterRunner):
            self.here = Here(environment)
        if isinstance(environment.runner, WorkerRunner):
            environment.process_exit_code = 0  # the verdict is the master's
            return
        try:
            target_of(environment)
            for warning in permissions(environment, int(options.num_users or 1)):
                logger.warning("%s", warning)
        except TargetError as error:
            logger.error("%s", error)
            sys.exit(2)
        self.conductor = Conductor(environment, token, self.here)
        gc.freeze()  # no collection walks through what is loaded, in a rush or at the end

    def join(self) -> Crowd:
        """The present rush, for a buyer of this process."""
        assert self.here is not None
        return self.here.wait()

    def begin(self) -> None:
        """Open the sale of a rush."""
        if self.conductor is not None:
            self.conductor.begin()

    def end(self) -> None:
        """Judge a rush that is stopped in its middle, by a button, a signal or --run-time."""
        if self.conductor is not None:
            self.conductor.conclude(self.conductor.rush, stopped=True)

    def verdict(self) -> tuple[str, int]:
        """What the last rush came to, and the exit code; nothing of a worker."""
        if self.conductor is None:
            return "", 0
        self.end()
        last = self.conductor.last
        return sentence(last) if last else "UNKNOWN: no rush", self.conductor.exit_code()
