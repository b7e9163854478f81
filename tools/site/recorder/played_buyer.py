"""The buyers of a schedule, each in its own process, as the recording process plays them."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

from django.conf import settings

from shop.sale.points import use_probe
from shop.sale.purchase import Attempt
from shop.strategies.shared.polling_lock import RETRY_PAUSE_SECONDS, AbstractPollingLock
from tools.site.recorder.live import (
    EXPECTED_STOP_TIMEOUT_SECONDS,
    PRODUCT,
    Recorder,
    Trace,
    current_buyer,
)

#: Points of a purchase that end a move, as its read and the moment before its commit do.
STOP_POINTS = ("setnx:before_expire", "acquired")
#: Of the strategies with RESTART or FAILOVER, those whose waiters poll the locks' server. Under the
#: others a waiter sends one request, which blocks on the server.
POLLING_STRATEGIES = ("setnx", "token", "token-watchdog")
#: The ttl of the locks in schedules in which no ttl may pass: longer than a schedule takes on any
#: machine.
LONG_TTL_SECONDS = 60.0

fork_context = multiprocessing.get_context("fork")


class MovesDiffer(Exception):
    """A schedule has other moves than an earlier schedule with the same turns had."""


class Gate:
    """Holds a waiter back between two polls of the lock's server.

    The gate is closed at most once, because a schedule changes the server at most once.
    """

    def __init__(self) -> None:
        self._may_poll = fork_context.Event()
        self._may_poll.set()
        self._is_between_polls = fork_context.Event()

    def pass_through(self) -> None:
        """Wait until the gate is open. The buyer's process calls this between two polls."""
        if not self._may_poll.is_set():
            self._is_between_polls.set()
            self._may_poll.wait()

    def close(self) -> None:
        """Close the gate, and wait until the buyer has stopped at it.

        Raises MovesDiffer if the buyer does not poll within a timeout: then it does not wait for
        the lock.
        """
        self._may_poll.clear()
        if not self._is_between_polls.wait(EXPECTED_STOP_TIMEOUT_SECONDS):
            raise MovesDiffer("a buyer does not poll the lock's server again")

    def open(self) -> None:
        self._may_poll.set()


class PipedTrace(Trace):
    """A trace whose events are sent to the recording process."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self.pipe = pipe

    def add(self, kind: str, *facts: object) -> None:
        self.pipe.send([kind] + list(facts))


class ProcessRecorder(Recorder):
    """A recorder in a buyer's process. It sends its events to the recording process.

    key   the Idempotency-Key of the purchase, or None
    pipe  brings a "go" for each move, and takes the events
    gate  holds the buyer back between two polls of the lock
    """

    def __init__(self, strategy: str, key: str | None, pipe: Connection, gate: Gate) -> None:
        super().__init__(strategy)
        self._gate = gate
        self.trace = PipedTrace(pipe)
        self._key = key
        self._pipe = pipe
        self._has_begun = False

    def buy(self) -> None:
        """Make one purchase. Before each poll for a lock, wait until the gate is open."""
        gated_polls = patch.object(AbstractPollingLock, "choose_pause_seconds", self._choose_pause)
        with use_probe(self._at_point), gated_polls:
            self._buy()

    def _choose_pause(self) -> float:
        """Wait until the gate is open, then return the seconds until the next poll."""
        self._gate.pass_through()
        return RETRY_PAUSE_SECONDS

    def _make_attempt(self) -> Attempt:
        return Attempt(PRODUCT, current_buyer(), self.strategy, key=self._key)

    def _await_next_turn(self) -> None:
        """End the current move, if there is one, and wait for the "go" that begins the next."""
        if self._has_begun:
            self.trace.add("stops")
        self._pipe.recv()
        self._has_begun = True

    def _at_point(self, point: str, facts: Mapping[str, object]) -> None:
        """Record a point of the purchase, and end the move at one of STOP_POINTS.

        At `acquired`, first send the token of the lock: with it the recording process recognizes
        the buyer's lock on the server.
        """
        if point == "setnx:before_expire":
            self.trace.add(point)
        if point == "acquired":
            self.trace.add("token", facts["token"], time.monotonic())
        super()._at_point(point, facts)
        if point in STOP_POINTS:
            self._await_next_turn()

    def _observe_state(self) -> list[Any]:
        return []  # the recording process adds the state


def _buy_in_process(
    name: str, strategy: str, key: str | None, ttl: float, pipe: Connection, gate: Gate
) -> None:
    """Make one purchase, in a thread of this process that current_buyer() recognizes by its name.

    name  the buyer, `A` or `B`
    key   the Idempotency-Key of the purchase, or None
    ttl   the ttl of the buyer's locks, in seconds
    pipe  brings a "go" for each move, and takes the buyer's events
    gate  holds the buyer back between two polls of the lock
    """
    settings.SHOP_LOCK_TTL = ttl
    settings.SHOP_TOKEN_TTL = ttl
    settings.SHOP_LOCK_MAX_HOLD = LONG_TTL_SECONDS
    buyer = threading.Thread(
        target=ProcessRecorder(strategy, key, pipe, gate).buy,
        name=f"interleaved-{name}",
        daemon=True,
    )
    buyer.start()
    buyer.join()


class PlayedBuyer:
    """A buyer's process, as the recording process controls it.

    pipe            carries "go" to the buyer, and the buyer's events back
    status          new, stopped, running, paused or ended; see PlayedSchedule in world.py
    key             the Idempotency-Key of the buyer's request, or None
    ttl             the ttl of its locks, in seconds
    polls_for_lock  whether it polls for the lock; otherwise it waits in RedisLock's queue
    """

    def __init__(self, name: str, strategy: str, key: str | None, ttl: float) -> None:
        self.name = name
        self.pipe, pipe_of_buyer = fork_context.Pipe()
        self.polls_for_lock = strategy in POLLING_STRATEGIES
        self._gate = Gate()
        self.process = fork_context.Process(
            target=_buy_in_process,
            args=(name, strategy, key, ttl, pipe_of_buyer, self._gate),
            daemon=True,
        )
        self.process.start()
        pipe_of_buyer.close()  # the buyer's process has its copy
        self.status = "new"

    def send_signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def hold_back(self) -> None:
        """Keep this buyer, who waits for the lock, from sending a request until resume() is called.

        A buyer that polls is held back between two polls. A buyer that does not poll has sent a
        single request, which blocks on the server. Its process is stopped.
        """
        if self.polls_for_lock:
            self._gate.close()
        else:
            self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let this buyer go on after hold_back()."""
        if self.polls_for_lock:
            self._gate.open()
        else:
            self.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill the process, which may be paused or waiting, and close the pipe to it."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
