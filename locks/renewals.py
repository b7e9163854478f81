"""Which leases are due for renewal, and what the replies mean. No I/O.

A lease is renewed each third of its ttl. An error is tried again until the lease's deadline; then
the lease is lost. The same driver (a thread, watchdog.py, or a task, aio/watchdog.py) cleans up
after waiters whose last command got no answer: the server may still execute that command, and
would give the lock to nobody.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .base_lease import BaseLease
from .clock import now
from .command import Arg, Call
from .lease import LossReason, Release
from .metrics import Metrics, emit
from .protocol import drift, milliseconds, renew_args
from .scripts import script

logger = logging.getLogger(__name__)

#: How often the server is asked whether an abandoned token has the lock after all ...
ASKED = 5
#: ... with how many seconds between the first two questions; each pause is twice the one before.
PAUSE = 0.1
#: Seconds beyond the ttl for which that is tried on a server that does not answer.
TRIED = 20.0


class Renewal:
    """A lease, and when it has to be looked at. Does not keep a forgotten lease alive."""

    __slots__ = ("due", "key", "lease", "metrics", "name", "stop", "token", "ttl")

    def __init__(
        self, lease: BaseLease, *, key: bytes, ttl: float, stop: float, metrics: Metrics | None
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


class Batch:
    """Commands to send together, and where their replies go.

    timeout  seconds that the server may take
    """

    def __init__(
        self, calls: Sequence[Call], timeout: float, settle: Callable[[Sequence[Any]], None]
    ) -> None:
        self.calls = calls
        self.timeout = timeout
        self.settle = settle  # with a reply, or the exception in its place, for each call


class Renewals:
    """The leases of this process on one server."""

    def __init__(self) -> None:
        self.renewals: dict[str, Renewal] = {}
        self.abandoned: dict[bytes, Abandoned] = {}
        self.on_due: Callable[[float], None] = lambda _: None  # something became due at this second

    def add(self, renewal: Renewal) -> None:
        """Renew this lease from now on."""
        self.renewals[renewal.token] = renewal

    def remove(self, token: str) -> bool:
        """Renew it no more; False if it was not being renewed. To call before it is released."""
        self.abandoned.pop(token.encode(), None)  # its release is asked for again
        return self.renewals.pop(token, None) is not None

    def abandon(
        self, token: bytes, keys: Sequence[bytes], args: Sequence[Arg], *, ttl: float
    ) -> None:
        """Release this token until it is certain that it has neither lock nor place in the queue.

        keys, args  of release.lua
        """
        abandoned = self.abandoned[token] = Abandoned(keys, args, now() + ttl + TRIED)
        self.on_due(abandoned.due)

    def release_again(
        self, token: str, keys: Sequence[bytes], ttl: float, fence_ttl: float
    ) -> None:
        """The release of this token got no answer: repeat it until there is one."""
        self.abandon(token.encode(), keys, (token, milliseconds(fence_ttl)), ttl=ttl)

    def release_abandoned(self, token: bytes) -> None:
        """Release it at once if it is an abandoned one: the lock was handed to it."""
        abandoned = self.abandoned.get(token)
        if abandoned is not None:
            abandoned.asked, abandoned.due = 0, 0.0
            self.on_due(0.0)

    def next_due(self) -> float:
        """The second of our clock at which something is due, or infinity."""
        renewals = [renewal.due for renewal in list(self.renewals.values())]
        abandoned = [each.due for each in list(self.abandoned.values())]
        return min(renewals + abandoned, default=math.inf)

    def due(self) -> Iterator[Batch]:
        """What is to be sent now. Marks the leases whose deadline has passed.

        Each batch is to be sent, and its replies settled, before the next one is asked for.
        """
        # Leases of similar ttl share a timeout: a short ttl does not shorten that of a long one.
        alike: defaultdict[int, list[tuple[Renewal, BaseLease]]] = defaultdict(list)
        deadline = math.inf
        for renewal in list(self.renewals.values()):
            at = now()
            lease = renewal.lease()
            if lease is not None and lease.deadline > at:
                deadline = min(deadline, lease.deadline)
            if renewal.due - renewal.ttl / 30 > at:  # what is due soon goes in the same batch
                continue
            if lease is not None and lease.outcome is Release.RELEASED:
                self.remove(renewal.token)  # it was on its way from node to node meanwhile
            elif lease is None:
                if self.remove(renewal.token):
                    logger.warning("%s: a lease was dropped without release", renewal.name)
            elif at >= lease.deadline or lease.loss is not None:
                if self.remove(renewal.token):
                    bounded = 0 < renewal.stop <= at
                    lease.mark_lost(LossReason.MAX_HOLD if bounded else LossReason.EXPIRED)
            elif at >= renewal.stop:
                renewal.due = lease.deadline
            else:
                alike[math.frexp(renewal.ttl)[1]].append((renewal, lease))
        for _, leases in sorted(alike.items()):
            yield self._renewing(leases, deadline)
        abandoned = [(t, each) for t, each in list(self.abandoned.items()) if each.due <= now()]
        if abandoned:
            yield self._releasing(abandoned)

    def _renewing(self, leases: Sequence[tuple[Renewal, BaseLease]], deadline: float) -> Batch:
        sent = now()
        # A silent server leaves time for more tries, and no other lease's loss is noticed late.
        timeout = min(min(r.ttl for r, _ in leases) / 6, max(0.05, deadline - sent))
        renew = script("renew")

        def settle(replies: Sequence[Any]) -> None:
            took = now() - sent
            for (renewal, lease), reply in zip(leases, replies, strict=True):
                if reply == 1:
                    lease.lasts_until(sent + renewal.ttl - drift(renewal.ttl))
                    renewal.due = lease.deadline - renewal.ttl * 2 / 3
                    emit(renewal.metrics, "renewed", renewal.name, took)
                elif isinstance(reply, Exception):
                    logger.warning("%s: not renewed, trying again: %s", renewal.name, reply)
                    renewal.due = min(lease.deadline, now() + renewal.ttl / 10)
                elif self.remove(renewal.token):  # else it was released while we asked
                    lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)

        calls: list[Call] = [(renew, [r.key], renew_args(r.token, r.ttl)) for r, _ in leases]
        return Batch(calls, timeout, settle)

    def _releasing(self, abandoned: Sequence[tuple[bytes, Abandoned]]) -> Batch:
        release = script("release")

        def settle(replies: Sequence[Any]) -> None:
            for (token, each), reply in zip(abandoned, replies, strict=True):
                if not isinstance(reply, Exception):
                    # Not ours: but the command that got no answer may still be on its way.
                    each.asked = ASKED if reply == 1 else each.asked + 1
                if each.asked >= ASKED or now() >= each.until:
                    self.abandoned.pop(token, None)
                each.due = now() + PAUSE * 2**each.asked

        return Batch([(release, each.keys, each.args) for _, each in abandoned], 0.5, settle)
