"""When a rush begins and ends, in the process that opens the sale: the only one, or the master."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import gevent
from locust.env import Environment
from locust.runners import STATE_STOPPING, MasterRunner

from loadtest.rush.choice import permissions
from loadtest.rush.gathering import Gathering
from loadtest.rush.open_files import TooFewFiles
from loadtest.rush.outcome import conclude, keep
from loadtest.rush.rush import Rush
from loadtest.stack.client import ShopUnreachable
from loadtest.target.target import Target

logger = logging.getLogger("loadtest")

#: Seconds for the release itself: clocks are compared before it.
RELEASE_TIMEOUT = 30.0


class Control:
    """The rushes of one Locust, one after the other.

    target  makes the target of the next one
    rush    the present rush, or the last one
    """

    def __init__(
        self, environment: Environment, gathering: Gathering, target: Callable[[], Target]
    ) -> None:
        self.environment = environment
        self.gathering = gathering
        self.target = target
        self.rush: Rush | None = None
        self._stopping = self._ending = False

    @property
    def options(self) -> Any:
        assert self.environment.parsed_options is not None
        return self.environment.parsed_options

    def begin(self) -> None:
        """Open a sale for a rush, and start its watcher."""
        buyers = int(self.options.num_users or 1)
        rush = self.rush = Rush(
            target=self.target(),
            buyers=buyers,
            stock=int(self.options.stock),
            deadline_s=float(self.options.deadline),
            gathering=self.gathering,
        )
        try:
            permissions(self.environment, buyers)
            rush.open_sale()
        except (ShopUnreachable, TooFewFiles) as error:
            logger.error("%s", error)
            rush.is_judged = True
            gevent.spawn(self._end, rush.failed(str(error)))
            return
        gevent.spawn(self._watch, rush)

    def refusal(self) -> str:
        """Why no other rush can begin with the buyers that are there; empty if one can."""
        before = self.rush
        if before is None or not before.is_judged or before.stopped or not self.options.stay:
            return "no buyers are free: start Locust with --stay, and a rush first"
        return self.gathering.refusal()

    def begin_another(self, wanted: dict[str, Any]) -> str:
        """Begin another rush with the buyers that stayed. Returns why not, or an empty text."""
        if refusal := self.refusal():
            return refusal
        vars(self.options).update(wanted)
        self.begin()
        return ""

    def progress(self) -> dict[str, Any] | None:
        """How far the present rush is; None if none is on."""
        rush = self.rush
        return None if rush is None or rush.finished.is_set() else rush.progress()

    def stop_begins(self) -> None:
        """Locust stops a run, for whatever reason."""
        self._stopping = True

    def stop_ends(self) -> None:
        """Judge a rush that was stopped in its middle: in the web UI, by --run-time, or by Locust
        since it lost its last worker."""
        try:
            if self.rush is not None and not self.rush.is_judged:
                self.gathering.stopping()
                self.rush.stop()
                conclude(self.environment, self.rush)
        finally:
            self._stopping = False

    @property
    def is_ending(self) -> bool:
        """Whether the last run is not over yet. Locust's master checks once a second whether its
        workers have stopped, and would stop a run that began before that check."""
        return self._stopping or self._ending

    def wait_for_the_end(self, seconds: float) -> bool:
        """Wait until the last run is over, and its workers are there again. Returns whether it is
        over; a worker that does not answer is not waited for."""
        deadline = time.monotonic() + seconds
        while self.is_ending or not self._is_ready():
            if time.monotonic() > deadline:
                return not self.is_ending
            gevent.sleep(0.02)
        return True

    def _is_ready(self) -> bool:
        runner = self.environment.runner
        if isinstance(runner, MasterRunner) and runner.state == STATE_STOPPING:
            runner.check_stopped()  # Locust does it on a message; no worker may be left
        return (runner is None or runner.state != STATE_STOPPING) and self.gathering.has_all()

    def _watch(self, rush: Rush) -> None:
        """End the run when every buyer has an answer. Locust itself would not end it."""
        arrival_timeout = rush.buyers / 20 + rush.target.prepare_s  # spawning and warming up
        if not rush.gate.wait(arrival_timeout):
            logger.error("only %d of %d buyers arrived", rush.arrived, rush.buyers)
            rush.begin()  # with those who are there; without the others there is no verdict
            rush.gate.wait(RELEASE_TIMEOUT)
        rush.finished.wait(rush.deadline_s + 60)
        if rush.is_judged:
            return  # it was stopped: what Locust runs now may be another rush
        conclude(self.environment, rush)
        self._end_the_run(stay=self.options.stay and not self.gathering.refusal())

    def _end(self, result: dict[str, Any]) -> None:
        """Keep a result, and end the run."""
        keep(self.environment, result)
        self._end_the_run(stay=self.options.stay)

    def _end_the_run(self, *, stay: bool) -> None:
        """End a run that would go on forever, unless the buyers stay for another rush."""
        runner = self.environment.runner
        assert runner is not None
        if stay:
            return
        if self.options.headless:
            runner.quit()
            return
        starting = getattr(self.environment.web_ui, "_swarm_greenlet", None)
        self._ending = True
        try:
            if starting is not None:  # as Locust's own POST /stop does: it would go on starting
                starting.kill(block=True)
            runner.stop()
            self._is_ready()
        finally:
            self._ending = False
