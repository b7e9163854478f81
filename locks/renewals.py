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
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from .errors import LossReason, emit
from .lease import BaseLease
from .protocol import Call, drift, renew_args, script
from .support import now

if TYPE_CHECKING:
    from .lock import Options

logger = logging.getLogger(__name__)

#: How often the server is asked whether an abandoned token has the lock after all ...
ASKED = 5
#: ... the first time at once, then with so many seconds between two questions; each pause is twice
#: the one before.
PAUSE = 0.1
#: Seconds beyond the ttl for which that is tried on a server that does not answer.
TRIED = 20.0
#: Tokens that are released in one go, the earliest due first: others are not kept waiting.
AT_ONCE = 100

#: The key of the lock and the token that has it: tokens may be the user's, and not unique.
Held: TypeAlias = tuple[bytes, str]


class Renewal:
    """A lease, and when it has to be looked at. Does not keep a forgotten lease alive.

    lock  the options of its lock
    stop  the second from which it is not renewed any more; 0: never was
    keep  set to the lease, it does
    """

    def __init__(self, lease: BaseLease, lock: Options[Any]) -> None:
        self.lease = weakref.ref(lease)
        self.keep: BaseLease | None = None
        self.lock = lock
        self.ttl = lock.ttl
        self.held: Held = lock.keys[0], lease.token
        self.stop = now() + lock.renewed_for if lock.renew else 0.0
        self.touch = now() + lock.fence_ttl / 3
        self.is_good_until(lease.deadline)

    def keys_at(self, at: float) -> Sequence[bytes]:
        """Those of its next renewal: now and then all, so that the fence is remembered for as long
        as the lock is held; else the lock's alone, which is also renewed while its slot moves."""
        if at < self.touch:
            return self.lock.keys[:1]
        self.touch = at + self.lock.fence_ttl / 3
        return self.lock.keys

    def is_good_until(self, deadline: float) -> None:
        """Look at it in a third of the ttl, or later if that had been renewed: no loss is noticed
        later because a lease was extended."""
        self.due = min(deadline - self.ttl * 2 / 3, now() + self.ttl / 3)


class Abandoned:
    """A token for which nobody waits any more, but which may have, or get, the lock."""

    def __init__(self, token: str, lock: Options[Any]) -> None:
        self.call = lock.release_of(token)
        self.asked = 0
        self.due = now()
        self.until = now() + lock.ttl + TRIED


#: Steps: commands to send together, and the seconds that the server may take. Answer: for each its
#: reply, or the exception in its place.
Batches: TypeAlias = Generator[tuple[Sequence[Call], float], Sequence[Any], None]


class Renewals:
    """The leases of this process on one server."""

    def __init__(self) -> None:
        self.renewals: dict[Held, Renewal] = {}
        self.abandoned: dict[Held, Abandoned] = {}
        self._idle = False
        self._tick = 1.0

    def on_due(self, due: float) -> None:
        """Something became due at this second: do not sleep past it."""

    def add(self, renewal: Renewal) -> None:
        """Renew this lease from now on."""
        self.renewals[renewal.held] = renewal
        self._idle = False
        self._tick = renewal.ttl / 4  # before its renewal is due
        self.on_due(renewal.due)

    def remove(self, held: Held) -> Renewal | None:
        """Renew it no more; None if it was not being renewed. To call before it is released."""
        self.abandoned.pop(held, None)  # its release is asked for again
        return self.renewals.pop(held, None)

    def shorten(self, held: Held, seconds: float) -> None:
        """From now on believe and repeat its renewals for no longer than so many seconds: a command
        that ends it so soon is sent, and may be executed after any of them."""
        renewal = self.renewals.get(held)
        lease = renewal.lease() if renewal is not None else None
        if renewal is not None and lease is not None:
            renewal.ttl = min(renewal.ttl, seconds)
            renewal.is_good_until(min(lease.deadline, now() + seconds))
            self.on_due(renewal.due)

    def abandon(self, token: str, lock: Options[Any]) -> None:
        """Release this token until it is certain that it has neither lock nor place in the queue.

        A release, or another command with this token, got no answer.
        """
        abandoned = self.abandoned[lock.keys[0], token] = Abandoned(token, lock)
        self.on_due(abandoned.due)

    def release_abandoned(self, token: str) -> None:
        """If this token is abandoned, release it at once: the lock was handed to it."""
        for (_, each), abandoned in list(self.abandoned.items()):
            if each == token:
                abandoned.asked, abandoned.due = 0, 0.0
                self.on_due(0.0)

    def next_due(self) -> float:
        """The second of our clock at which something is due, or infinity."""
        renewals = [renewal.due for renewal in list(self.renewals.values())]
        abandoned = [each.due for each in list(self.abandoned.values())]
        return min(renewals + abandoned, default=math.inf)

    def next_look(self) -> float:
        """The second until which to sleep: where leases come and go, look again before that."""
        due = self.next_due() if self._idle else min(self.next_due(), now() + self._tick)
        self._idle = True
        return due

    def due(self) -> Batches:
        """The steps that do what is due now. Marks the leases whose deadline has passed."""
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
            if lease is not None and lease.outcome is not None:
                self.renewals.pop(renewal.held, None)  # on its way between nodes meanwhile
            elif lease is None:
                if self.remove(renewal.held):
                    logger.warning("%s: a lease was dropped without release", renewal.lock.name)
            elif at >= lease.deadline or lease.loss is not None:
                if self.remove(renewal.held):
                    bounded = 0 < renewal.stop <= at
                    lease.mark_lost(LossReason.MAX_HOLD if bounded else LossReason.EXPIRED)
            elif at >= renewal.stop:
                renewal.due = lease.deadline
            else:
                alike[math.frexp(renewal.ttl)[1]].append((renewal, lease))
        for _, leases in sorted(alike.items()):
            yield from self._renew(leases, deadline)
        abandoned = [item for item in list(self.abandoned.items()) if item[1].due <= now()]
        if abandoned:
            abandoned.sort(key=lambda item: item[1].due)
            yield from self._release(abandoned[:AT_ONCE])

    def _renew(self, leases: Sequence[tuple[Renewal, BaseLease]], deadline: float) -> Batches:
        sent = now()
        # A silent server leaves time for more tries, and no other lease's loss is noticed late.
        timeout = min(min(r.ttl for r, _ in leases) / 6, max(0.05, deadline - sent))
        renew = script("renew")
        calls: list[Call] = [
            (renew, r.keys_at(sent), renew_args(r.held[1], r.ttl, r.lock.fence_ttl))
            for r, _ in leases
        ]
        replies = yield calls, timeout
        took = now() - sent
        for (renewal, lease), reply in zip(leases, replies, strict=True):
            if reply == 1:
                lease.lasts_until(sent + renewal.ttl - drift(renewal.ttl), sent)
                renewal.is_good_until(lease.deadline)
                emit(renewal.lock.metrics, "renewed", renewal.lock.name, took)
            elif isinstance(reply, Exception):
                logger.warning("%s: not renewed, trying again: %s", renewal.lock.name, reply)
                renewal.due = min(lease.deadline, now() + renewal.ttl / 10)
            elif self.remove(renewal.held):  # else it was released while we asked
                lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)

    def _release(self, abandoned: Sequence[tuple[Held, Abandoned]]) -> Batches:
        replies = yield [each.call for _, each in abandoned], 0.5
        for (held, each), reply in zip(abandoned, replies, strict=True):
            if not isinstance(reply, Exception):
                # Not ours: but the command that got no answer may still be on its way.
                each.asked = ASKED if reply == 1 else each.asked + 1
            if each.asked >= ASKED or now() >= each.until:
                self.abandoned.pop(held, None)
            each.due = now() + PAUSE * 2**each.asked
        if all(isinstance(reply, Exception) for reply in replies):
            for each in list(self.abandoned.values()):  # nor would the server hear the others
                each.due = max(each.due, now() + PAUSE)
