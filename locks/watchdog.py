"""One thread per process and server that renews all leases there, and marks the lost ones.

A lease is renewed each third of its ttl, on a connection of the thread's own with a short timeout
and no retries. An error is tried again until the lease's deadline; then the lease is lost. Started
by the first lease, ended when there has been none for a while. A section of milliseconds is over
before the thread ever looks at it, so adding a lease wakes the thread only when it would otherwise
sleep too long.

The thread also cleans up after waiters whose last command got no answer: the server may still
execute that command, and would give the lock to nobody.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from .clock import now
from .lazily import lazily
from .lease import Lease, LossReason
from .metrics import Metrics, emit
from .protocol import drift, renew_args
from .scripts import script
from .wire import Address, Arg, Call, call_all, is_refusal_of_replica

logger = logging.getLogger(__name__)

#: Seconds without anything to renew after which the thread and its connection end.
IDLE = 10.0
#: How often the server is asked whether an abandoned token has the lock after all ...
ASKED = 5
#: ... with how many seconds between the first two questions; each pause is twice the one before.
PAUSE = 0.1
#: Seconds beyond the ttl for which that is tried on a server that does not answer.
TRIED = 20.0


class Renewal:
    """A lease, and when the watchdog has to look at it. Does not keep a forgotten lease alive."""

    __slots__ = ("due", "key", "lease", "metrics", "name", "stop", "token", "ttl")

    def __init__(
        self, lease: Lease, *, key: bytes, ttl: float, stop: float, metrics: Metrics | None
    ) -> None:
        self.lease = weakref.ref(lease)
        self.token = lease.token
        self.name = lease.name
        self.key = key
        self.ttl = ttl
        self.stop = stop  # the second from which it is not renewed any more; 0: never was
        self.metrics = metrics
        self.due = lease.deadline - ttl * 2 / 3


class Abandoned:
    """A token for which nobody waits any more, but which may have, or get, the lock."""

    __slots__ = ("args", "asked", "due", "keys", "until")

    def __init__(self, keys: Sequence[bytes], args: Sequence[Arg], until: float) -> None:
        self.keys = keys
        self.args = args
        self.asked = 0
        self.due = now() + PAUSE
        self.until = until


class Watchdog:
    """The leases of this process on one server, and the thread that renews them."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.on_demoted: Callable[[], None] = lambda: None
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Forget everything: also what a forked child inherited."""
        self._renewals: dict[str, Renewal] = {}
        self._abandoned: dict[bytes, Abandoned] = {}
        vars(self).pop("_changed", None)
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._idle = False
        self._tick = 1.0
        #: The thread sleeps until then. Infinite while it decides, so that whoever adds a lease
        #: meanwhile waits for it and wakes it.
        self._wakes_at = math.inf

    def after_fork(self) -> None:
        """In the child: the leases, and the connection to renew them, are the parent's."""
        self._disconnect()
        self.reset()

    def close(self) -> None:
        """Nobody will add a lease any more: end the thread when there is nothing left to do."""
        self._closed = True
        if self._thread is not None:
            self._wake()

    def add(self, renewal: Renewal) -> None:
        """Renew this lease from now on."""
        self._renewals[renewal.token] = renewal
        self._idle = False
        self._tick = renewal.ttl / 4  # before its renewal is due
        if renewal.due < self._wakes_at:
            self._wake()

    def remove(self, token: str) -> bool:
        """Renew it no more; False if it was not being renewed. To call before it is released."""
        return self._renewals.pop(token, None) is not None

    def abandon(
        self, token: bytes, keys: Sequence[bytes], args: Sequence[Arg], *, ttl: float
    ) -> None:
        """Release this token until it is certain that it has neither lock nor place in the queue.

        keys, args  of release.lua
        """
        abandoned = self._abandoned[token] = Abandoned(keys, args, now() + ttl + TRIED)
        if abandoned.due < self._wakes_at:
            self._wake()

    def release_abandoned(self, token: bytes) -> None:
        """Release it at once if it is an abandoned one: the lock was handed to it."""
        abandoned = self._abandoned.get(token)
        if abandoned is not None:
            abandoned.asked, abandoned.due = 0, 0.0
            self._wake()

    def _wake(self) -> None:
        changed = lazily(self, "_changed", threading.Condition)
        with changed:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(
                    target=self._run, args=(changed,), name="locks.watchdog", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    logger.warning("no thread to renew leases, they end with their ttl: %s", error)
                    return
                self._thread = thread
            changed.notify()

    def _run(self, changed: threading.Condition) -> None:
        while self._sleep(changed):
            try:
                self._look()
            except Exception:
                logger.exception("the watchdog goes on after an error of its own")
                time.sleep(0.05)

    def _sleep(self, changed: threading.Condition) -> bool:
        """Until something is due; False when the thread has ended."""
        with changed:
            self._wakes_at = math.inf
            due = self._next_due()
            if not self._idle:  # leases come and go: look again before sleeping for longer
                due = min(due, now() + self._tick)
            self._idle = True
            self._wakes_at = due
            if due < math.inf:
                changed.wait(max(0.0, due - now()))
            elif (self._closed or not changed.wait(IDLE)) and self._next_due() == math.inf:
                self._thread = None
                self._disconnect()
                return False
            return True

    def _next_due(self) -> float:
        renewals = [renewal.due for renewal in list(self._renewals.values())]
        abandoned = [each.due for each in list(self._abandoned.values())]
        return min(renewals + abandoned, default=math.inf)

    def _look(self) -> None:
        # Leases of similar ttl share a timeout: a short ttl does not shorten that of a long one.
        batches: defaultdict[int, list[tuple[Renewal, Lease]]] = defaultdict(list)
        deadline = math.inf
        for renewal in list(self._renewals.values()):
            at = now()
            lease = renewal.lease()
            if lease is not None and lease.deadline > at:
                deadline = min(deadline, lease.deadline)
            if renewal.due - renewal.ttl / 30 > at:  # what is due soon goes in the same batch
                continue
            if lease is None:
                if self.remove(renewal.token):
                    logger.warning("%s: a lease was dropped without release", renewal.name)
            elif at >= lease.deadline or lease.loss is not None:
                if self.remove(renewal.token):
                    bounded = 0 < renewal.stop <= at
                    lease.mark_lost(LossReason.MAX_HOLD if bounded else LossReason.EXPIRED)
            elif at >= renewal.stop:
                renewal.due = lease.deadline
            else:
                batches[math.frexp(renewal.ttl)[1]].append((renewal, lease))
        for _, batch in sorted(batches.items()):
            self._renew(batch, deadline)
        self._release_what_is_abandoned()

    def _renew(self, batch: Sequence[tuple[Renewal, Lease]], deadline: float) -> None:
        sent = now()
        # A silent server leaves time for more tries, and no other lease's loss is noticed late.
        timeout = min(min(r.ttl for r, _ in batch) / 6, max(0.05, deadline - sent))
        replies = self._ask(
            [(script("renew"), [r.key], renew_args(r.token, r.ttl)) for r, _ in batch], timeout
        )
        took = now() - sent
        for (renewal, lease), reply in zip(batch, replies, strict=True):
            if reply == 1:
                # lease.extend() may have reached further.
                lease.deadline = max(lease.deadline, sent + renewal.ttl - drift(renewal.ttl))
                renewal.due = lease.deadline - renewal.ttl * 2 / 3
                emit(renewal.metrics, "renewed", renewal.name, took)
            elif isinstance(reply, Exception):
                logger.warning("%s: not renewed, trying again: %s", renewal.name, reply)
                renewal.due = min(lease.deadline, now() + renewal.ttl / 10)
            elif self.remove(renewal.token):  # else it was released while we asked
                lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)

    def _release_what_is_abandoned(self) -> None:
        due = [(t, each) for t, each in list(self._abandoned.items()) if each.due <= now()]
        if not due:
            return
        release = script("release")
        replies = self._ask([(release, each.keys, each.args) for _, each in due], 0.5)
        for (token, each), reply in zip(due, replies, strict=True):
            if not isinstance(reply, Exception):
                # Not ours: but the command that got no answer may still be on its way.
                each.asked = ASKED if reply == 1 else each.asked + 1
            if each.asked >= ASKED or now() >= each.until:
                self._abandoned.pop(token, None)
            each.due = now() + PAUSE * 2**each.asked

    def _ask(self, calls: Sequence[Call], timeout: float) -> list[Any]:
        """Replies, or the error that the server was not reached for each of them."""
        if self._connection is None:
            self._connection = self._address.connection()
        try:
            replies = call_all(self._connection, calls, min(timeout, self._address.timeout))
        except Exception as error:
            replies = [error] * len(calls)
            self._disconnect()
        if any(isinstance(r, Exception) and is_refusal_of_replica(r) for r in replies):
            self._disconnect()
            self.on_demoted()
        return replies

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
