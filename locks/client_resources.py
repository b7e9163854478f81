"""The resources that all locks of one client share, and functions that acquire a lock with them.

The resources are connections, a watchdog (renewals) and the wake-ups of waiters. They belong to the
client's connection pool, not to its address: two clients of one address may have different users or
TLS settings, and a lock must not use those of another client.
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
from .sans_io.acquisition import Acquisition, Listen, RunScript, Step
from .sans_io.protocol import Wake, WireError
from .sans_io.steps import run_steps
from .wakeups import Mailbox, WakeUps
from .watchdog import Watchdog

if TYPE_CHECKING:
    from .cluster.cluster_lock import SlotResources

    LockResources: TypeAlias = "ClientResources | SlotResources"

T = TypeVar("T")

#: Maximum number of a client's waiters that poll at the same time; in a cluster, of those for one
#: slot. Each needs a connection while it polls.
MAX_CONCURRENT_POLLS = 50


def perform(
    resources: LockResources, acquisition: Acquisition, steps: Generator[Step, Any, T]
) -> T:
    """Perform the steps of an acquisition in this thread, and return their result.

    A semaphore lets at most MAX_CONCURRENT_POLLS waiters poll at the same time. The waiter acquires
    it when it is time to poll, and releases it after its next command.

    Raises WireError. Exceptions of signal handlers are passed on.
    """
    held_semaphore: threading.Semaphore | None = None

    def perform_step(step: Step) -> Any:
        """Perform one step and return its result."""
        nonlocal held_semaphore
        if isinstance(step, Listen):
            return resources.wakeups.listen(step.until)
        if isinstance(step, RunScript):
            try:
                return resources.connections.call(step.command, timeout=step.timeout)
            finally:
                if held_semaphore is not None:
                    semaphore = held_semaphore
                    # Done before the release, so that the `finally` below does not release it again
                    # if a signal handler raises an exception in between.
                    held_semaphore = None
                    semaphore.release()
        wake = _sleep(acquisition, step.mailbox)  # the step is a Sleep
        if wake is None:
            held_semaphore = _acquire_poll_semaphore(resources, acquisition.ends_at)
        return wake

    try:
        return run_steps(steps, perform_step)
    finally:
        if held_semaphore is not None:
            held_semaphore.release()


def _acquire_poll_semaphore(resources: LockResources, until: float) -> threading.Semaphore | None:
    """Acquire and return the semaphore that limits concurrent polls.

    Returns None if it was not acquired by `until`, a time of our clock.
    """
    semaphore = get_or_create(
        resources.wakeups, "_poll_semaphore", lambda: threading.Semaphore(MAX_CONCURRENT_POLLS)
    )
    seconds_left = max(0.0, min(until - now(), threading.TIMEOUT_MAX))
    return semaphore if semaphore.acquire(timeout=seconds_left) else None


def undo(resources: LockResources, acquisition: Acquisition) -> None:
    """Leave the queue, and release the lock if it was granted or still will be.

    If the command fails, the watchdog repeats it. Exceptions of signal handlers are passed on.
    """
    step = acquisition.build_undo()
    if step is None:
        return
    reply = None  # stays None if a signal handler raises an exception before the reply
    try:
        reply = resources.connections.call(step.command, timeout=step.timeout)
    except WireError as error:
        reply = error
    finally:
        acquisition.evaluate_undo(reply)


def _sleep(acquisition: Acquisition, mailbox: Mailbox) -> Wake | None:
    """Sleep until a wake-up arrives and return it, or None when it is time to poll.

    It is time to poll at acquisition.compute_poll_time(). It is also time when the mailbox gets
    None: LockWaiters and ChannelWaiters put it there to make a waiter poll.
    """
    while True:
        # Other waiters may change the poll time meanwhile.
        seconds_left = acquisition.compute_poll_time() - now()
        if seconds_left <= 0:
            return None
        try:
            return mailbox.get(timeout=min(seconds_left, threading.TIMEOUT_MAX))
        except queue.Empty:
            continue


class ClientResources:
    """The connections, waiters and watchdog that all locks of a client share, on one server.

    They live as long as the client, or any of its locks. Then their threads and connections end.
    """

    def __init__(self, pool: Any) -> None:
        address = Address(pool)
        self.connections = Connections(address, max_idle=pool.max_connections)
        self.watchdog = Watchdog(address)
        self.wakeups = WakeUps(address, self.watchdog)
        self.connections.on_server_became_replica = self.wakeups.resubscribe
        self.watchdog.on_server_became_replica = self.connections.leave_replica
        self.wakeups.on_server_became_replica = self.connections.disconnect
        # The last of these is called first.
        for close in (self.watchdog.close, self.wakeups.close, self.connections.disconnect):
            finalizer = weakref.finalize(self, close)
            finalizer.atexit = False  # not needed when the process ends

    def after_fork(self) -> None:
        """Leave the parent's connections and threads to the parent. Runs in the child."""
        self.connections.disconnect()
        self.wakeups.after_fork()
        self.watchdog.after_fork()


#: The resources of each client. The key is the pool of the client; if the client is one of a
#: cluster, it is the client itself.
_resources_by_client: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def get_shared_resources(pool_or_cluster: Any, make: Callable[[Any], T]) -> T:
    """Return the connections, watchdog and waiters of a client, created by `make` on first use.

    Args:
        pool_or_cluster: The client's connection pool or, for a cluster, the client itself.
        make: Creates the resources from `pool_or_cluster`.
    """
    existing: T | None = _resources_by_client.get(pool_or_cluster)
    if existing is not None:
        return existing
    resources: T = _resources_by_client.setdefault(pool_or_cluster, make(pool_or_cluster))
    return resources


def _after_fork() -> None:
    """Leave the connections, threads and leases to the parent. Runs in a forked child."""
    for resources in list(_resources_by_client.values()):
        resources.after_fork()


os.register_at_fork(after_in_child=_after_fork)
