"""The schedule of renewals, and the evaluation of their replies. No I/O.

A lease is renewed each third of its ttl. An error is tried again until the lease's deadline; then
the lease is lost. The same driver (a thread, watchdog.py, or a task, aio/watchdog.py) cleans up
after waiters whose last command got no answer: the server may still execute that command, and the
lock would have no holder.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import defaultdict
from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

from ..clock import now
from ..errors import LossReason, emit
from ..lease import BaseLease
from .options import Options
from .protocol import Call, drift, renew_args, script

logger = logging.getLogger(__name__)

#: Number of answers after which an abandoned token is believed to have no lock.
MAX_RELEASE_ANSWERS = 5
#: Pause after the first of these releases; each further pause is twice as long.
FIRST_RELEASE_PAUSE_SECONDS = 0.1
#: Time beyond the ttl for which a release is retried on a server that does not answer.
RELEASE_SECONDS_BEYOND_TTL = 20.0
#: Upper bound on the tokens released in one batch, so that renewals do not wait for them.
MAX_RELEASES_PER_BATCH = 100

#: The key of the lock and the token that has it: tokens may be the user's, and not unique.
Held: TypeAlias = tuple[bytes, str]


class Renewal:
    """The schedule of one lease. It does not keep a forgotten lease alive.

    Attributes:
        lock: The options of its lock.
        stop: Second of our clock after which it is no longer renewed; 0 if renewal is off.
        kept_lease: A strong reference to the lease where the lease must outlive its caller.
    """

    def __init__(self, lease: BaseLease, lock: Options[Any]) -> None:
        self.lease = weakref.ref(lease)
        self.kept_lease: BaseLease | None = None
        self.lock = lock
        self.ttl = lock.ttl
        self.held: Held = lock.keys[0], lease.token
        self.stop = now() + lock.renewed_for if lock.renew else 0.0
        self.refresh_fence_at = now() + lock.fence_ttl / 3
        self.schedule_before(lease.deadline)

    def keys_at(self, at: float) -> Sequence[bytes]:
        """Return the keys for the next renewal.

        Usually it is the lock's key alone, which can be renewed while its slot moves; periodically
        all four, which also refreshes the expiry of the fence.

        Args:
            at: Second of our clock.
        """
        if at < self.refresh_fence_at:
            return self.lock.keys[:1]
        self.refresh_fence_at = at + self.lock.fence_ttl / 3
        return self.lock.keys

    def schedule_before(self, deadline: float) -> None:
        """Set the time of the next renewal after the deadline was moved.

        It comes within a third of the ttl, so that a loss is noticed in time even where the lease
        was extended.

        Args:
            deadline: The deadline of the lease, a second of our clock.
        """
        self.due = min(deadline - self.ttl * 2 / 3, now() + self.ttl / 3)


class AbandonedToken:
    """A token whose waiter gave up, but which may have, or still get, the lock."""

    def __init__(self, token: str, lock: Options[Any]) -> None:
        self.call = lock.build_release(token)
        self.answers = 0
        self.due = now()
        self.until = now() + lock.ttl + RELEASE_SECONDS_BEYOND_TTL


#: Steps: commands to send together, and the seconds that the server may take. Answer: for each its
#: reply, or the exception in its place.
Batches: TypeAlias = Generator[tuple[Sequence[Call], float], Sequence[Any], None]


class Renewals:
    """The leases of this process on one server."""

    def __init__(self) -> None:
        self.renewals: dict[Held, Renewal] = {}
        self.abandoned: dict[Held, AbandonedToken] = {}
        self._idle = False
        self._tick = 1.0

    def on_due(self, due: float) -> None:
        """Do not sleep past this second: something is due then."""

    def add(self, renewal: Renewal) -> None:
        """Renew this lease from now on."""
        self.renewals[renewal.held] = renewal
        self._idle = False
        self._tick = renewal.ttl / 4  # before its renewal is due
        self.on_due(renewal.due)

    def remove(self, held: Held) -> Renewal | None:
        """Stop renewing a lease. Call this before releasing it.

        Args:
            held: The key of its lock and its token.

        Returns:
            The renewal, or None if the lease was not being renewed.
        """
        self.abandoned.pop(held, None)  # its release is asked for again
        return self.renewals.pop(held, None)

    def shorten(self, held: Held, seconds: float) -> None:
        """Renew a lease, and trust its renewals, for no longer than `seconds` from now on.

        A command that ends the lease so soon is being sent, and may be executed after any renewal.

        Args:
            held: The key of its lock and its token.
            seconds: Seconds that the lease may last.
        """
        renewal = self.renewals.get(held)
        lease = renewal.lease() if renewal is not None else None
        if renewal is not None and lease is not None:
            renewal.ttl = min(renewal.ttl, seconds)
            renewal.schedule_before(min(lease.deadline, now() + seconds))
            self.on_due(renewal.due)

    def abandon(self, token: str, lock: Options[Any]) -> None:
        """Release this token until it is certain that it has neither lock nor place in the queue.

        A release, or another command with this token, got no answer.
        """
        abandoned = self.abandoned[lock.keys[0], token] = AbandonedToken(token, lock)
        self.on_due(abandoned.due)

    def release_abandoned(self, token: str) -> None:
        """If this token is abandoned, release it at once: the lock was handed to it."""
        for (_, abandoned_token), abandoned in list(self.abandoned.items()):
            if abandoned_token == token:
                abandoned.answers = 0
                abandoned.due = 0.0
                self.on_due(0.0)

    def next_due(self) -> float:
        """Return the second of our clock at which something is due, or infinity."""
        renewals = [renewal.due for renewal in list(self.renewals.values())]
        releases = [abandoned.due for abandoned in list(self.abandoned.values())]
        return min(renewals + releases, default=math.inf)

    def next_wake_up(self) -> float:
        """Return the second until which to sleep, which is earlier where leases come and go."""
        due = self.next_due() if self._idle else min(self.next_due(), now() + self._tick)
        self._idle = True
        return due

    def due_batches(self) -> Batches:
        """Return the steps that are due now. They mark the leases whose deadline has passed."""
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
            yield from self._release(abandoned[:MAX_RELEASES_PER_BATCH])

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
                lease.move_deadline_forward(sent + renewal.ttl - drift(renewal.ttl), sent)
                renewal.schedule_before(lease.deadline)
                emit(renewal.lock.metrics, "renewed", renewal.lock.name, took)
            elif isinstance(reply, Exception):
                logger.warning("%s: not renewed, trying again: %s", renewal.lock.name, reply)
                renewal.due = min(lease.deadline, now() + renewal.ttl / 10)
            elif self.remove(renewal.held):  # else it was released while we asked
                lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)

    def _release(self, batch: Sequence[tuple[Held, AbandonedToken]]) -> Batches:
        replies = yield [abandoned.call for _, abandoned in batch], 0.5
        for (held, abandoned), reply in zip(batch, replies, strict=True):
            if not isinstance(reply, Exception):
                # After any reply but 1, the command without an answer may still be on its way.
                abandoned.answers = MAX_RELEASE_ANSWERS if reply == 1 else abandoned.answers + 1
            if abandoned.answers >= MAX_RELEASE_ANSWERS or now() >= abandoned.until:
                self.abandoned.pop(held, None)
            abandoned.due = now() + FIRST_RELEASE_PAUSE_SECONDS * 2**abandoned.answers
        if all(isinstance(reply, Exception) for reply in replies):
            # The server is unreachable, so do not retry the other tokens yet.
            for abandoned in list(self.abandoned.values()):
                abandoned.due = max(abandoned.due, now() + FIRST_RELEASE_PAUSE_SECONDS)
