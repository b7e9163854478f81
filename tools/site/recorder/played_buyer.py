"""The two buyers of a schedule, each in its own process.

The recording process (world.py) starts these processes, sends them a "go" for each move, and
receives the events of their purchases.
"""

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
    PRODUCT,
    RECORDED_STOP_TIMEOUT_SECONDS,
    Recorder,
    Trace,
    get_current_buyer,
)

#: Points of a purchase (shop/sale/points.py) that end a move here. A move also ends at the read of
#: the stock and before the commit, as in live.py.
STOP_POINTS = ("setnx:before_expire", "acquired")
#: The strategies with a recorded restart or failover of the locks' server, except `redis`. Their
#: waiters poll the server. A waiter of `redis` sends one request, which blocks on the server.
POLLING_STRATEGIES = ("setnx", "token", "token-watchdog")
#: The ttl of the locks in schedules in which no ttl may expire. It is longer than a schedule takes
#: even on a slow machine.
LONG_TTL_SECONDS = 60.0

fork_context = multiprocessing.get_context("fork")


class MovesDiffer(Exception):
    """A turn went differently from the same turn of an earlier schedule or recording."""


class PollGate:
    """A gate that a buyer passes between two polls of the locks' server.

    While the gate is closed, the buyer sends no request. The gate is closed at most once, because a
    schedule has at most one restart or failover of the server.
    """

    def __init__(self) -> None:
        self._gate_is_open = fork_context.Event()
        self._gate_is_open.set()
        self._buyer_is_at_gate = fork_context.Event()

    def pass_through(self) -> None:
        """Return at once if the gate is open. Otherwise wait until it is opened.

        The buyer's process calls this between two polls.
        """
        if not self._gate_is_open.is_set():
            self._buyer_is_at_gate.set()
            self._gate_is_open.wait()

    def close(self) -> None:
        """Close the gate, and wait until the buyer waits in pass_through().

        Raises MovesDiffer after a timeout. A buyer who does not reach the gate does not poll, so it
        does not wait for the lock. In the recording it waits.
        """
        self._gate_is_open.clear()
        if not self._buyer_is_at_gate.wait(RECORDED_STOP_TIMEOUT_SECONDS):
            raise MovesDiffer("a buyer does not poll the lock's server again")

    def open(self) -> None:
        """Open the gate, so that a buyer in pass_through() continues."""
        self._gate_is_open.set()


class PipedTrace(Trace):
    """A trace that sends its events to the recording process, which adds the buyer's name."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self.pipe = pipe

    def add(self, kind: str, *details: object) -> None:
        """Send an event of this process's buyer to the recording process."""
        self.pipe.send([kind] + list(details))


class ProcessRecorder(Recorder):
    """Records one purchase in a buyer's process, and sends the events to the recording process.

    idempotency_key  the Idempotency-Key of the purchase, or None
    pipe             receives a "go" for each move, and sends the events
    poll_gate        can stop the buyer between two polls for the lock
    """

    def __init__(
        self, strategy: str, idempotency_key: str | None, pipe: Connection, poll_gate: PollGate
    ) -> None:
        super().__init__(strategy)
        self._poll_gate = poll_gate
        self.trace = PipedTrace(pipe)
        self._idempotency_key = idempotency_key
        self._pipe = pipe
        self._has_begun = False

    def buy(self) -> None:
        """Make one purchase. Before each poll for a lock, wait until the gate is open."""
        gated_polls = patch.object(
            AbstractPollingLock, "choose_pause_seconds", self._choose_poll_pause
        )
        with use_probe(self._record_point), gated_polls:
            self._buy()

    def _choose_poll_pause(self) -> float:
        """Wait until the gate is open, then return the seconds until the next poll for the lock.

        A polling lock calls this between two polls.
        """
        self._poll_gate.pass_through()
        return RETRY_PAUSE_SECONDS

    def _make_attempt(self) -> Attempt:
        """Return the arguments of check_out() for the buyer of this process."""
        return Attempt(PRODUCT, get_current_buyer(), self.strategy, key=self._idempotency_key)

    def _await_next_turn(self) -> None:
        """End the current move, if there is one, and wait for the "go" that begins the next."""
        if self._has_begun:
            self.trace.add("stops")
        self._pipe.recv()
        self._has_begun = True

    def _record_point(self, point: str, details: Mapping[str, object]) -> None:
        """Record that the buyer has reached a point of its purchase; end the move at a STOP_POINT.

        At the point `acquired`, first send the token of the lock, by which the recording process
        recognizes the buyer's lock on the server.
        """
        if point == "setnx:before_expire":
            self.trace.add(point)
        if point == "acquired":
            self.trace.add("token", details["token"], time.monotonic())
        super()._record_point(point, details)
        if point in STOP_POINTS:
            self._await_next_turn()

    def _observe_state(self) -> list[Any]:
        """Return an empty state, because the recording process replaces it."""
        return []


def _buy_in_process(
    name: str,
    strategy: str,
    idempotency_key: str | None,
    ttl: float,
    pipe: Connection,
    poll_gate: PollGate,
) -> None:
    """Make one purchase, in a new thread of this process.

    get_current_buyer() reads the buyer from the name of this thread.

    name             the buyer, `A` or `B`
    idempotency_key  the Idempotency-Key of the purchase, or None
    ttl              the ttl of the buyer's locks, in seconds
    pipe             receives a "go" for each move, and sends the buyer's events
    poll_gate        can stop the buyer between two polls for the lock
    """
    settings.SHOP_LOCK_TTL = ttl
    settings.SHOP_TOKEN_TTL = ttl
    settings.SHOP_LOCK_MAX_HOLD = LONG_TTL_SECONDS
    thread = threading.Thread(
        target=ProcessRecorder(strategy, idempotency_key, pipe, poll_gate).buy,
        name=f"interleaved-{name}",
        daemon=True,
    )
    thread.start()
    thread.join()


class PlayedBuyer:
    """A buyer's process, seen from the recording process.

    pipe             sends a "go" for each move to the buyer, and receives the buyer's events
    status           new, stopped, running, paused or ended; see PlayedSchedule in world.py
    idempotency_key  the Idempotency-Key of the buyer's purchase, or None
    ttl              the ttl of the buyer's locks, in seconds
    polls_for_lock   whether the buyer polls for the lock; otherwise it waits in RedisLock's queue
    """

    def __init__(self, name: str, strategy: str, idempotency_key: str | None, ttl: float) -> None:
        self.name = name
        self.pipe, pipe_of_buyer = fork_context.Pipe()
        self.polls_for_lock = strategy in POLLING_STRATEGIES
        self._poll_gate = PollGate()
        self.process = fork_context.Process(
            target=_buy_in_process,
            args=(name, strategy, idempotency_key, ttl, pipe_of_buyer, self._poll_gate),
            daemon=True,
        )
        self.process.start()
        pipe_of_buyer.close()  # the forked process has its own copy of this end of the pipe
        self.status = "new"

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP, to the buyer's process."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def hold_back(self) -> None:
        """Keep this buyer, who waits for the lock, from sending requests until resume() is called.

        A buyer that polls is stopped between two polls, at the gate. A buyer that does not poll has
        sent a single request, which blocks on the server; its process is stopped by a signal.
        """
        if self.polls_for_lock:
            self._poll_gate.close()
        else:
            self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let this buyer continue after hold_back()."""
        if self.polls_for_lock:
            self._poll_gate.open()
        else:
            self.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill the process, which may be paused or waiting, and close the pipe to it."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
