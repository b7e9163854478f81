"""The resources that all locks of one client share in a process, and acquiring with them.

They belong to the client's connection pool, not to its address: two clients of one address may have
different users or TLS settings, and a lock must not use those of another client.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from .clock import now
from .connection import Address, Connections
from .lazy import get_or_create
from .sans_io.acquisition import Acquisition, Ask, Listen, Step
from .sans_io.protocol import Wake, WireError
from .sans_io.steps import run_steps
from .wakeups import Mailbox, WakeUps
from .watchdog import Watchdog

if TYPE_CHECKING:
    from .cluster.cluster_lock import SlotResources

    LockResources: TypeAlias = "ClientResources | SlotResources"

T = TypeVar("T")

#: Maximum number of a client's waiters that poll at the same time (in a cluster: of its waiters for
#: one slot). Each needs a connection.
MAX_CONCURRENT_POLLS = 50


def perform(shared: LockResources, acquisition: Acquisition, steps: Generator[Step, Any, T]) -> T:
    """Perform the steps of an acquisition in this thread, and return their result.

    Raises WireError. Exceptions of signal handlers are passed on.
    """
    turn: threading.Semaphore | None = None  # while this waiter has the turn to poll

    def do(step: Step) -> Any:
        nonlocal turn
        if isinstance(step, Listen):
            return shared.wakeups.listen(step.until)
        if isinstance(step, Ask):
            try:
                return shared.connections.call(step.command, within=step.within)
            finally:
                if turn is not None:
                    used_turn = turn
                    turn = None  # first: a signal handler may raise, and a turn is released once
                    used_turn.release()
        wake = _sleep(acquisition, step.mailbox)
        if wake is None:
            turn = _take_turn(shared, acquisition.end)
        return wake

    try:
        return run_steps(steps, do)
    finally:
        if turn is not None:
            turn.release()


def _take_turn(shared: LockResources, end: float) -> threading.Semaphore | None:
    """Wait for a turn to poll, until `end` at the latest. Return what the waiter then releases."""
    turns = get_or_create(
        shared.wakeups, "_turns", lambda: threading.Semaphore(MAX_CONCURRENT_POLLS)
    )
    left = max(0.0, min(end - now(), threading.TIMEOUT_MAX))
    return turns if turns.acquire(timeout=left) else None


def undo(shared: LockResources, acquisition: Acquisition) -> None:
    """Leave the queue, and release the lock if it was granted or still will be."""
    step = acquisition.build_undo()
    if step is None:
        return
    reply = None
    try:
        reply = shared.connections.call(step.command, within=step.within)
    except WireError as error:
        reply = error
    finally:
        acquisition.evaluate_undo(reply)


def _sleep(acquisition: Acquisition, mailbox: Mailbox) -> Wake | None:
    """Return the wake-up, or None when it is time to poll.

    It is time to poll when the subscription broke, and at the time of Acquisition.poll_at().
    """
    while True:
        left = acquisition.poll_at() - now()
        if left <= 0:
            return None
        try:
            return mailbox.get(timeout=min(left, threading.TIMEOUT_MAX))
        except queue.Empty:
            continue


class ClientResources:
    """The shared resources on one server.

    They live as long as their client, or any lock of it. Their threads and connections end with
    them.
    """

    def __init__(self, pool: Any) -> None:
        address = Address(pool)
        self.connections = Connections(address, max_idle=pool.max_connections)
        self.watchdog = Watchdog(address)
        self.wakeups = WakeUps(address, self.watchdog)
        self.connections.on_server_became_replica = self.wakeups.resubscribe
        self.watchdog.on_server_became_replica = self.connections.leave_replica
        self.wakeups.on_server_became_replica = self.connections.disconnect
        for close in (self.watchdog.close, self.wakeups.close, self.connections.disconnect):
            weakref.finalize(self, close).atexit = False  # called in reverse order

    def after_fork(self) -> None:
        """Leave the parent's connections and threads to the parent. Runs in the child."""
        self.connections.disconnect()
        self.wakeups.after_fork()
        self.watchdog.after_fork()


#: Resources by the identity of the client: its pool, or a cluster's client itself.
_shared: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def get_shared_resources(client: Any, make: Callable[[Any], T]) -> T:
    """Return this process's resources for a client, created by `make` when first used.

    Args:
        client: The identity of the client: its pool, or a cluster's client itself.
        make: Creates the resources.
    """
    resources: T = _shared.get(client) or _shared.setdefault(client, make(client))
    return resources


def _after_fork() -> None:
    for shared in list(_shared.values()):
        shared.after_fork()


os.register_at_fork(after_in_child=_after_fork)
