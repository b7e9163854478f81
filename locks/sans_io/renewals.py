"""The schedule of renewals, and the evaluation of their replies. No I/O.

A lease is renewed each third of its ttl. A renewal without a reply is repeated until the lease's
deadline; then the lease is lost. The same driver (a thread in watchdog.py, a task in
aio/watchdog.py) releases the tokens whose last command got no reply, such as those of waiters that
gave up: the server may still execute that command and grant the lock to a waiter that is gone.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import defaultdict
from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

from ..clock import now
from ..errors import LossReason
from ..lease import BaseLease
from .options import Options
from .protocol import Call, drift, load_script, renew_args

logger = logging.getLogger(__name__)

#: Number of replies to releases of an abandoned token after which no further release is sent, even
#: if none of them says that the lock was released.
MAX_RELEASE_REPLIES = 5
#: Pause after such a release as long as none has got a reply. Each reply doubles it.
SHORTEST_RELEASE_PAUSE_SECONDS = 0.1
#: Time, in addition to the ttl, after which no release is sent, even if the server never answered.
RELEASE_SECONDS_BEYOND_TTL = 20.0
#: Upper bound on the tokens released in one batch, so that renewals do not wait for them.
MAX_RELEASES_PER_BATCH = 100

#: The key of the lock and the token that has it. The token alone may not be unique: a user of
#: `adopt()` or of compat.py can choose it.
LeaseId: TypeAlias = tuple[bytes, str]


class Renewal:
    """The schedule of one lease. It refers to the lease weakly, so a dropped lease is noticed.

    Attributes:
        lock: The options of the lease's lock.
        ttl: Seconds for which each renewal prolongs the lease: the ttl of the lock, unless
            Renewals.shorten() reduced it.
        due: Time of our clock at which the lease is renewed next.
        renew_until: Time of our clock from which the lease is no longer renewed; 0 if renewal is
            off.
        kept_lease: A strong reference to the lease if the lease must outlive its caller.
    """

    def __init__(self, lease: BaseLease, lock: Options[Any]) -> None:
        self.lease = weakref.ref(lease)
        self.kept_lease: BaseLease | None = None
        self.lock = lock
        self.ttl = lock.ttl
        self.lease_id: LeaseId = lock.keys[0], lease.token
        self.renew_until = now() + lock.renewed_for if lock.renew else 0.0
        self.refresh_fence_at = now() + lock.fence_ttl / 3
        self.schedule_before(lease.deadline)

    def choose_keys(self, at: float) -> Sequence[bytes]:
        """Return the keys for the next renewal.

        Usually the lock's key alone is returned: one key can be renewed even while its slot moves.
        From time to time all four are returned, which also renews the expiry of the fence.

        Args:
            at: The time of our clock.
        """
        if at < self.refresh_fence_at:
            return self.lock.keys[:1]
        self.refresh_fence_at = at + self.lock.fence_ttl / 3
        return self.lock.keys

    def schedule_before(self, deadline: float) -> None:
        """Set the time of the next renewal, because the deadline of the lease was moved.

        The renewal comes within a third of the ttl, so that a loss is noticed in time even if the
        lease was extended by more.

        Args:
            deadline: The deadline of the lease, a time of our clock.
        """
        self.due = min(deadline - self.ttl * 2 / 3, now() + self.ttl / 3)


class AbandonedToken:
    """A token that is no longer used, but which may have the lock or may still be granted it."""

    def __init__(self, token: str, lock: Options[Any]) -> None:
        self.call = lock.build_release(token)
        self.reply_count = 0
        self.due = now()
        self.release_until = now() + lock.ttl + RELEASE_SECONDS_BEYOND_TTL


#: A generator of steps. A step is a batch of commands and the seconds that the server may take. Its
#: result is a list with the reply to each command, or the exception in place of a reply.
Batches: TypeAlias = Generator[tuple[Sequence[Call], float], Sequence[Any], None]


class Renewals:
    """The leases of one client of this process on one server; for asyncio, in one event loop."""

    def __init__(self) -> None:
        self.renewals: dict[LeaseId, Renewal] = {}
        self.abandoned: dict[LeaseId, AbandonedToken] = {}
        self._idle = False
        self._tick = 1.0

    def wake_driver_before(self, due: float) -> None:
        """Wake the driver if it would sleep past this time. Does nothing unless overridden.

        Called when a lease or an abandoned token is added, or becomes due earlier.

        Args:
            due: A time of our clock.
        """

    def add(self, renewal: Renewal) -> None:
        """Renew this lease from now on."""
        self.renewals[renewal.lease_id] = renewal
        self._idle = False
        self._tick = renewal.ttl / 4  # before its renewal is due
        self.wake_driver_before(renewal.due)

    def remove(self, lease_id: LeaseId) -> Renewal | None:
        """Stop renewing a lease, and stop repeating a release of it. Call this before releasing it.

        Args:
            lease_id: The key of its lock and its token.

        Returns:
            The renewal, or None if the lease was not being renewed.
        """
        self.abandoned.pop(lease_id, None)  # the caller sends a new release
        return self.renewals.pop(lease_id, None)

    def shorten(self, lease_id: LeaseId, seconds: float) -> None:
        """Treat a lease as if its ttl were at most `seconds` from now on.

        The caller is about to send a command that shortens the lease. The server may execute that
        command after a renewal that was sent later, so no renewal may be trusted for longer.

        Args:
            lease_id: The key of its lock and its token.
            seconds: Seconds that the lease lasts after the command.
        """
        renewal = self.renewals.get(lease_id)
        lease = renewal.lease() if renewal is not None else None
        if renewal is not None and lease is not None:
            renewal.ttl = min(renewal.ttl, seconds)
            renewal.schedule_before(min(lease.deadline, now() + seconds))
            self.wake_driver_before(renewal.due)

    def abandon(self, token: str, lock: Options[Any]) -> None:
        """Release this token repeatedly until it most likely has neither the lock nor a place.

        Called when a release, or another command with this token, got no reply. That command may
        still be executed, so the release is repeated until it has released the lock,
        MAX_RELEASE_REPLIES replies have arrived, or the ttl and RELEASE_SECONDS_BEYOND_TTL are
        over.
        """
        abandoned = self.abandoned[lock.keys[0], token] = AbandonedToken(token, lock)
        self.wake_driver_before(abandoned.due)

    def release_abandoned(self, token: str) -> None:
        """Release this token at once if it is abandoned, because the lock was granted to it."""
        for (_, abandoned_token), abandoned in list(self.abandoned.items()):
            if abandoned_token == token:
                abandoned.reply_count = 0
                abandoned.due = 0.0
                self.wake_driver_before(0.0)

    def get_next_due(self) -> float:
        """Return the time of our clock at which the next step is due, or infinity."""
        renewals = [renewal.due for renewal in list(self.renewals.values())]
        releases = [abandoned.due for abandoned in list(self.abandoned.values())]
        return min(renewals + releases, default=math.inf)

    def plan_wake_up(self) -> float:
        """Return the time of our clock until which the driver sleeps.

        It is earlier than needed if a lease was added since the last call: then another is likely
        to be added soon, and does not have to wake the driver.
        """
        due = self.get_next_due() if self._idle else min(self.get_next_due(), now() + self._tick)
        self._idle = True
        return due

    def due_batches(self) -> Batches:
        """Return the steps that are due now, and mark the leases whose deadline has passed."""
        # Only leases with similar ttls share a batch: a short ttl means a short timeout.
        leases_by_ttl: defaultdict[int, list[tuple[Renewal, BaseLease]]] = defaultdict(list)
        deadline = math.inf
        for renewal in list(self.renewals.values()):
            at = now()
            lease = renewal.lease()
            if lease is not None and lease.deadline > at:
                deadline = min(deadline, lease.deadline)
            if renewal.due - renewal.ttl / 30 > at:  # what is due soon goes in the same batch
                continue
            if lease is not None and lease.outcome is not None:
                self.renewals.pop(renewal.lease_id, None)  # released while it moved between nodes
            elif lease is None:
                if self.remove(renewal.lease_id):
                    logger.warning("%s: a lease was dropped without release", renewal.lock.name)
            elif at >= lease.deadline or lease.loss is not None:
                if self.remove(renewal.lease_id):
                    reached_max_hold = 0 < renewal.renew_until <= at
                    lease.mark_lost(LossReason.MAX_HOLD if reached_max_hold else LossReason.EXPIRED)
            elif at >= renewal.renew_until:
                renewal.due = lease.deadline
            else:
                leases_by_ttl[math.frexp(renewal.ttl)[1]].append((renewal, lease))
        for _, leases in sorted(leases_by_ttl.items()):
            yield from self._renew(leases, deadline)
        abandoned = [item for item in list(self.abandoned.items()) if item[1].due <= now()]
        if abandoned:
            abandoned.sort(key=lambda item: item[1].due)
            yield from self._release(abandoned[:MAX_RELEASES_PER_BATCH])

    def _renew(self, leases: Sequence[tuple[Renewal, BaseLease]], deadline: float) -> Batches:
        sent = now()
        # Short enough to repeat the batch if the server is silent, and to notice the next loss.
        timeout = min(min(r.ttl for r, _ in leases) / 6, max(0.05, deadline - sent))
        renew = load_script("renew")
        calls: list[Call] = [
            (renew, r.choose_keys(sent), renew_args(r.lease_id[1], r.ttl, r.lock.fence_ttl))
            for r, _ in leases
        ]
        replies = yield calls, timeout
        round_trip_seconds = now() - sent
        for (renewal, lease), reply in zip(leases, replies, strict=True):
            if reply == 1:
                lease.move_deadline_forward(sent + renewal.ttl - drift(renewal.ttl), sent)
                renewal.schedule_before(lease.deadline)
                renewal.lock.count_event("renewed", round_trip_seconds)
            elif isinstance(reply, Exception):
                logger.warning("%s: not renewed, trying again: %s", renewal.lock.name, reply)
                renewal.due = min(lease.deadline, now() + renewal.ttl / 10)
            elif self.remove(renewal.lease_id):  # unless it was released meanwhile
                lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)

    def _release(self, batch: Sequence[tuple[LeaseId, AbandonedToken]]) -> Batches:
        replies = yield [abandoned.call for _, abandoned in batch], 0.5
        for (lease_id, abandoned), reply in zip(batch, replies, strict=True):
            if not isinstance(reply, Exception):
                # After any reply but 1, the server may still receive the command without a reply.
                abandoned.reply_count = (
                    MAX_RELEASE_REPLIES if reply == 1 else abandoned.reply_count + 1
                )
            if abandoned.reply_count >= MAX_RELEASE_REPLIES or now() >= abandoned.release_until:
                self.abandoned.pop(lease_id, None)
            abandoned.due = now() + SHORTEST_RELEASE_PAUSE_SECONDS * 2**abandoned.reply_count
        if all(isinstance(reply, Exception) for reply in replies):
            # The server is unreachable, so do not retry the other tokens yet.
            for abandoned in list(self.abandoned.values()):
                abandoned.due = max(abandoned.due, now() + SHORTEST_RELEASE_PAUSE_SECONDS)
