"""One thread per process that renews all its leases, and says which of them are lost.

A lease is renewed each third of its ttl, on a connection of the thread's own with a short timeout
and no retries, all that are due on a server in one go. An error is tried again until the lease's
deadline; then the lease is lost. Started by the first lease; a section of milliseconds is over
before the thread ever looks at it, so adding a lease wakes the thread only when it would otherwise
sleep too long.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import redis

from .lease import Lease, LossReason
from .metrics import Metrics, tell
from .protocol import drift, milliseconds
from .scripts import script
from .wire import Server, call_all

logger = logging.getLogger(__name__)

#: Seconds that the thread sleeps at most while leases keep coming.
TICK = 1.0


class Renewal:
    """A lease, and when the watchdog has to look at it. Does not keep a forgotten lease alive."""

    __slots__ = ("due", "key", "lease", "metrics", "name", "server", "stop", "token", "ttl")

    def __init__(
        self,
        lease: Lease,
        *,
        server: Server,
        key: bytes,
        ttl: float,
        stop: float,
        metrics: Metrics | None,
    ) -> None:
        self.lease = weakref.ref(lease)
        self.token = lease.token
        self.name = lease.name
        self.server = server
        self.key = key
        self.ttl = ttl
        self.stop = stop  # monotonic second from which it is not renewed any more; 0: never was
        self.metrics = metrics
        self.due = lease.deadline - ttl * 2 / 3


class Watchdog:
    """The leases of this process, and the thread that renews them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: also what a forked child inherited."""
        self._renewals: dict[str, Renewal] = {}
        vars(self).pop("_changed", None)
        self._thread: threading.Thread | None = None
        self._connections: dict[Server, Any] = {}
        self._tick = TICK
        self._idle = False
        #: The thread sleeps until then. Infinite as well while it makes up its mind, so that
        #: whoever adds a lease meanwhile waits for it and wakes it.
        self._wakes_at = math.inf

    def after_fork(self) -> None:
        """In the child: the leases, and the connections to renew them, are the parent's."""
        for connection in self._connections.values():
            connection.disconnect()
        self.reset()

    def add(self, renewal: Renewal) -> None:
        """Renew this lease from now on."""
        self._renewals[renewal.token] = renewal
        self._idle = False
        if renewal.ttl < self._tick * 3:
            self._tick = renewal.ttl / 3
        if renewal.due < self._wakes_at:
            self._wake()

    def remove(self, token: str) -> bool:
        """Renew it no more; False if it was not being renewed. To call before it is released."""
        return self._renewals.pop(token, None) is not None

    def _wake(self) -> None:
        changed: threading.Condition = vars(self).setdefault("_changed", threading.Condition())
        with changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, args=(changed,), name="locks.watchdog", daemon=True
                )
                self._thread.start()
            changed.notify()

    def _run(self, changed: threading.Condition) -> None:
        while True:
            with changed:
                self._wakes_at = math.inf
                due = min((r.due for r in list(self._renewals.values())), default=math.inf)
                now = time.monotonic()
                wakes_at = due if self._idle else min(due, now + self._tick)
                self._idle = True
                self._wakes_at = wakes_at
                if wakes_at > now:
                    changed.wait(None if wakes_at == math.inf else wakes_at - now)
            try:
                self._look()
            except Exception:
                logger.exception("the watchdog goes on after an error of its own")
                time.sleep(self._tick / 10)

    def _look(self) -> None:
        soon = time.monotonic() + self._tick / 10
        batches: defaultdict[Server, list[tuple[Renewal, Lease]]] = defaultdict(list)
        for renewal in list(self._renewals.values()):
            if renewal.due > soon:
                continue
            lease = renewal.lease()
            now = time.monotonic()
            if lease is None:
                if self.remove(renewal.token):
                    logger.warning("%s: a lease was dropped without release", renewal.name)
            elif now >= lease.deadline or lease.loss is not None:
                if self.remove(renewal.token):
                    lease.mark_lost(
                        LossReason.MAX_HOLD if 0 < renewal.stop <= now else LossReason.EXPIRED
                    )
            elif now >= renewal.stop:
                renewal.due = lease.deadline
            else:
                batches[renewal.server].append((renewal, lease))
        for server, batch in batches.items():
            self._renew(server, batch)

    def _renew(self, server: Server, batch: Sequence[tuple[Renewal, Lease]]) -> None:
        sent = time.monotonic()
        try:
            replies = call_all(
                self._connection(server),
                script("renew"),
                [([r.key], [r.token, milliseconds(r.ttl)]) for r, _ in batch],
            )
        except (redis.RedisError, OSError) as error:
            self._connections.pop(server).disconnect()
            replies = [error] * len(batch)
        took = time.monotonic() - sent
        for (renewal, lease), reply in zip(batch, replies, strict=True):
            if reply == 1:
                lease.deadline = sent + renewal.ttl - drift(renewal.ttl)
                renewal.due = lease.deadline - renewal.ttl * 2 / 3
                tell(renewal.metrics, "renewed", renewal.name, took)
            elif isinstance(reply, Exception):
                logger.warning("%s: not renewed, trying again: %s", renewal.name, reply)
                renewal.due = min(lease.deadline, time.monotonic() + renewal.ttl / 10)
            elif self.remove(renewal.token):  # else it was released while we asked
                lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)

    def _connection(self, server: Server) -> Any:
        """Ours to this server. Its timeout, a sixth of the shortest ttl, is what a silent server
        can delay the renewals on another."""
        timeout = self._tick / 2
        connection = self._connections.get(server)
        if connection is None or connection.socket_timeout > timeout:
            if connection is not None:
                connection.disconnect()
            connection = self._connections[server] = server.connection(timeout)
        return connection


#: The one of this process.
watchdog = Watchdog()
os.register_at_fork(after_in_child=watchdog.after_fork)
