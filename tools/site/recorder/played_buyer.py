"""A buyer of a recorded schedule, each in a separate process."""

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

from shop.sale.points import installed
from shop.sale.purchase import Attempt
from shop.strategies.shared.polling_lock import RETRY_PAUSE_SECONDS, AbstractPollingLock
from tools.site.recorder.live import (
    EXPECTED_STOP_TIMEOUT_SECONDS,
    PRODUCT,
    Recorder,
    Trace,
    current_buyer,
)

#: Points of a purchase at which a buyer stops, besides its read and its commit.
STOPS = ("setnx:before_expire", "acquired")
#: Strategies whose waiters poll the lock's server. Under other strategies a waiter sends one
#: request, which blocks on the server.
POLLING_STRATEGIES = ("setnx", "token", "token-watchdog")
#: The ttl of the locks in schedules in which no ttl may pass: no machine is that slow.
LONG_TTL_SECONDS = 60.0

fork = multiprocessing.get_context("fork")


class Differs(Exception):
    """A schedule had other moves than before."""


class Gate:
    """Holds a waiter back between two polls of the lock's server.

    It is closed once at most, because a schedule changes the server once at most.
    """

    def __init__(self) -> None:
        self._may_poll = fork.Event()
        self._may_poll.set()
        self._is_between_polls = fork.Event()

    def pass_through(self) -> None:
        """Wait until the gate is open. The buyer calls it, in its own process, between polls."""
        if not self._may_poll.is_set():
            self._is_between_polls.set()
            self._may_poll.wait()

    def close(self) -> None:
        """Close the gate, and wait until the waiter stands before it.

        Raises Differs if the buyer does not poll, because it does not wait for the lock.
        """
        self._may_poll.clear()
        if not self._is_between_polls.wait(EXPECTED_STOP_TIMEOUT_SECONDS):
            raise Differs("a buyer does not poll the lock's server again")

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
    """A recorder in a buyer's process, which sends its events to the recording process."""

    def __init__(self, strategy: str, key: str | None, pipe: Connection, gate: Gate) -> None:
        super().__init__(strategy)
        self._gate = gate
        self.trace = PipedTrace(pipe)
        self._key = key
        self._pipe = pipe
        self._has_begun = False

    def buy(self) -> None:
        gated_polls = patch.object(AbstractPollingLock, "choose_pause_seconds", self._pause)
        with installed(self._at_point), gated_polls:
            self._buy()

    def _pause(self) -> float:
        """Wait at the gate, then return the seconds until the next poll."""
        self._gate.pass_through()
        return RETRY_PAUSE_SECONDS

    def _attempt(self) -> Attempt:
        return Attempt(PRODUCT, current_buyer(), self.lock, key=self._key)

    def _move(self) -> None:
        if self._has_begun:
            self.trace.add("stops")
        self._pipe.recv()  # blocks until the recording process sends "go"
        self._has_begun = True

    def _at_point(self, point: str, facts: Mapping[str, object]) -> None:
        if point == "setnx:before_expire":
            self.trace.add(point)
        if point == "acquired":
            self.trace.add("token", facts["token"], time.monotonic())
        super()._at_point(point, facts)
        if point in STOPS:
            self._move()

    def _observe_state(self) -> list[Any]:
        return []  # the recording process reads the state instead


def _buy_in_process(
    name: str, strategy: str, key: str | None, ttl: float, pipe: Connection, gate: Gate
) -> None:
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
    """The recording process's handle on the process of a buyer.

    pipe            carries "go" to the buyer, and the buyer's events back
    status          new, stopped, running, paused or ended; see Schedule in world.py
    key             the Idempotency-Key of the buyer's request, or None
    ttl             the ttl of its locks, in seconds
    polls_for_lock  whether it polls for the lock; otherwise it waits in RedisLock's queue
    """

    def __init__(self, name: str, strategy: str, key: str | None, ttl: float) -> None:
        self.name = name
        self.pipe, theirs = fork.Pipe()
        self.polls_for_lock = strategy in POLLING_STRATEGIES
        self._gate = Gate()
        self.process = fork.Process(
            target=_buy_in_process,
            args=(name, strategy, key, ttl, theirs, self._gate),
            daemon=True,
        )
        self.process.start()
        theirs.close()
        self.status = "new"

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def hold_back(self) -> None:
        """Hold back this buyer, who waits for the lock, until resume().

        A buyer that polls is held back between two polls. Another one, whose single request blocks
        on the server, is stopped as a process.
        """
        if self.polls_for_lock:
            self._gate.close()
        else:
            self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.polls_for_lock:
            self._gate.open()
        else:
            self.signal(signal.SIGCONT)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()
