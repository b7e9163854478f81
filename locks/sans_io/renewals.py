"""The schedule of renewals, and the evaluation of their replies. No I/O.

A lease is renewed each third of its ttl. A renewal without a reply is repeated until the lease's
deadline; then the lease is lost. A thread (watchdog.py) or a task (aio/watchdog.py) sends the
renewals.

The same thread or task releases abandoned tokens. A token is abandoned if the last command with it
got no reply, for example because its waiter gave up. The server may still execute that command, and
grant the lock to a waiter that is gone.
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
from .protocol import Call, build_renew_args, compute_drift, load_script

logger = logging.getLogger(__name__)

#: Number of replies to releases of an abandoned token after which no further release is sent, even
#: if none of them says that the lock was released.
MAX_RELEASE_REPLIES = 5
#: Pause between two releases of an abandoned token until the first reply. Each reply doubles it.
SHORTEST_RELEASE_PAUSE_SECONDS = 0.1
#: Time, in addition to the ttl, after which no release is sent, even if the server never answered.
RELEASE_SECONDS_BEYOND_TTL = 20.0
#: Time that the server may take to answer a renewal, even if a lease ends before.
MIN_RENEWAL_TIMEOUT_SECONDS = 0.05
#: Time that the server may take to answer a batch of releases. Renewals wait meanwhile.
RELEASE_TIMEOUT_SECONDS = 0.5
#: Upper bound on the tokens released in one batch, so that renewals do not wait for them.
MAX_RELEASES_PER_BATCH = 100

#: The key of the lock and the token that has it. The token alone may not be unique: a user of
#: `adopt()` or of compat.py can choose it.
LeaseId: TypeAlias = tuple[bytes, str]


class Renewal:
    """The schedule of one lease. It refers to the lease weakly, so a dropped lease is noticed.

    Attributes:
        lease_ref: A weak reference to the lease.
        lease_id: The key of the lock and the token of the lease.
        lock: The options of the lease's lock.
        ttl: Seconds for which each renewal prolongs the lease: the ttl of the lock, unless
            Renewals.shorten() reduced it.
        due: Time of our clock at which the lease is renewed next.
        renew_until: Time of our clock from which the lease is no longer renewed; 0 if renewal is
            off.
        refresh_fence_at: Time of our clock from which the next renewal also renews the fence's key.
        kept_lease: A strong reference to the lease, so that it is renewed even if the caller drops
            it; otherwise None.
    """

    def __init__(self, lease: BaseLease, lock: Options[Any]) -> None:
        self.lease_ref = weakref.ref(lease)
        self.kept_lease: BaseLease | None = None  # keeps the lease alive if its caller drops it
        self.lock = lock
        self.ttl = lock.ttl
        self.lease_id: LeaseId = lock.keys[0], lease.token
        self.renew_until = now() + lock.renewed_for if lock.renew else 0.0
        self.refresh_fence_at = now() + lock.fence_ttl / 3
        self.schedule_before(lease.deadline)

    def choose_keys(self, current_time: float) -> Sequence[bytes]:
        """Return the keys for a renewal that is sent now.

        Usually this is the lock's key alone: in a cluster a command with one key succeeds even
        while the slot moves. Whenever a third of fence_ttl has passed, it is all four keys. Then
        the script also renews the expiry of the fence's key.

        Args:
            current_time: The time of our clock.
        """
        if current_time < self.refresh_fence_at:
            return self.lock.keys[:1]
        self.refresh_fence_at = current_time + self.lock.fence_ttl / 3
        return self.lock.keys

    def schedule_before(self, deadline: float) -> None:
        """Set the time of the next renewal, because the deadline of the lease was moved.

        The renewal is due when two thirds of the ttl are left, and at most a third of the ttl from
        now. So a loss is noticed in time even if the lease was extended by much more than its ttl.

        Args:
            deadline: The deadline of the lease, a time of our clock.
        """
        self.due = min(deadline - self.ttl * 2 / 3, now() + self.ttl / 3)


class AbandonedToken:
    """A token that is no longer used, but may have the lock or may still get it.

    Attributes:
        release_call: The command that releases the token.
        reply_count: Number of replies to releases. After MAX_RELEASE_REPLIES replies the token
            needs no more releases.
        due: Time of our clock at which the next release is sent.
        release_until: Time of our clock from which no more releases are sent.
    """

    def __init__(self, token: str, lock: Options[Any]) -> None:
        self.release_call = lock.build_release(token)
        self.reply_count = 0
        self.due = now()
        self.release_until = now() + lock.ttl + RELEASE_SECONDS_BEYOND_TTL


#: A generator of batches. A batch is a list of commands and the seconds that the server may take.
#: Its result is a list with the reply to each command, or the exception in place of a reply.
Batches: TypeAlias = Generator[tuple[Sequence[Call], float], Sequence[Any], None]


class Renewals:
    """The leases that this process or event loop holds on one server, with one client.

    Attributes:
        renewals: The schedules of the leases.
        abandoned: The tokens that are released repeatedly.
    """

    def __init__(self) -> None:
        self.renewals: dict[LeaseId, Renewal] = {}
        self.abandoned: dict[LeaseId, AbandonedToken] = {}
        self._expects_leases = True  # True at first, and when a lease was just added
        self._longest_sleep_seconds = 1.0  # limits the sleep if _expects_leases

    def wake_before(self, due: float) -> None:
        """Wake the thread or task that renews the leases if it would sleep past this time.

        Called when a lease or an abandoned token is added, or becomes due earlier. This class has
        no thread or task; the watchdogs override the method.

        Args:
            due: A time of our clock.
        """

    def add(self, renewal: Renewal) -> None:
        """Renew the lease of this Renewal from now on."""
        self.renewals[renewal.lease_id] = renewal
        self._expects_leases = True
        # A lease is first renewed when a third of its ttl has passed. A sleep of a quarter of the
        # ttl ends before that. So if another lease with the same ttl is added during the sleep, the
        # thread or task need not be woken.
        self._longest_sleep_seconds = renewal.ttl / 4
        self.wake_before(renewal.due)

    def remove(self, lease_id: LeaseId) -> Renewal | None:
        """Stop renewing a lease. Call it before the lease is released.

        If an earlier release of the lease got no reply, it is being repeated in the background. The
        repetitions stop as well, because the caller is about to send a new release.

        Args:
            lease_id: The key of its lock and its token.

        Returns:
            The renewal, or None if the lease was not being renewed.
        """
        self.abandoned.pop(lease_id, None)
        return self.renewals.pop(lease_id, None)

    def shorten(self, lease_id: LeaseId, seconds: float) -> None:
        """Treat a lease as if its ttl were at most `seconds` from now on.

        The caller is about to send a command that shortens the lease. The server may execute it
        even after a renewal that was sent later, so that renewal must not be trusted for longer.

        Args:
            lease_id: The key of its lock and its token.
            seconds: Seconds that the lease lasts after the command.
        """
        renewal = self.renewals.get(lease_id)
        lease = renewal.lease_ref() if renewal is not None else None
        if renewal is not None and lease is not None:
            renewal.ttl = min(renewal.ttl, seconds)
            renewal.schedule_before(min(lease.deadline, now() + seconds))
            self.wake_before(renewal.due)

    def abandon(self, token: str, lock: Options[Any]) -> None:
        """Release this token repeatedly: it may have the lock or a place in the queue.

        Called when a release, or another command with this token, got no reply. That command may
        still be executed. So the release is repeated until it releases the lock,
        MAX_RELEASE_REPLIES replies have arrived, or the ttl and RELEASE_SECONDS_BEYOND_TTL have
        passed.
        """
        abandoned = self.abandoned[lock.keys[0], token] = AbandonedToken(token, lock)
        self.wake_before(abandoned.due)

    def release_abandoned(self, token: str) -> None:
        """Release this token at once if it is abandoned, that is, if its last command got no reply.

        Called when a wake-up shows that the lock was granted to the token, but no waiter uses it.
        """
        for (_, abandoned_token), abandoned in list(self.abandoned.items()):
            if abandoned_token == token:
                abandoned.reply_count = 0
                abandoned.due = 0.0
                self.wake_before(0.0)

    def get_next_due(self) -> float:
        """Return the time of our clock at which the next renewal or release is due, or infinity."""
        renewals = [renewal.due for renewal in list(self.renewals.values())]
        releases = [abandoned.due for abandoned in list(self.abandoned.values())]
        return min(renewals + releases, default=math.inf)

    def plan_wake_up(self) -> float:
        """Return the time of our clock until which the thread or task sleeps.

        If a lease was added since the last call, more leases will probably be added soon. The sleep
        then ends before the first renewal of a lease with the same ttl is due. So the thread or
        task need not be woken when such a lease is added.
        """
        due = self.get_next_due()
        if self._expects_leases:
            due = min(due, now() + self._longest_sleep_seconds)
        self._expects_leases = False
        return due

    def generate_due_batches(self) -> Batches:
        """Yield the batches that are due now, and mark expired leases as lost."""
        # The batch of a lease with a short ttl has a short timeout. So leases share a batch only if
        # their ttls are similar: between the same two powers of two.
        leases_by_ttl_power: defaultdict[int, list[tuple[Renewal, BaseLease]]] = defaultdict(list)
        next_deadline = math.inf
        for renewal in list(self.renewals.values()):
            current_time = now()
            lease = renewal.lease_ref()
            if lease is not None and lease.deadline > current_time:
                next_deadline = min(next_deadline, lease.deadline)
            # A lease that is due within a thirtieth of its ttl is renewed now, in the same batch.
            is_due_soon = renewal.due - renewal.ttl / 30 <= current_time
            if not is_due_soon:
                continue
            if lease is None:
                if self.remove(renewal.lease_id):
                    logger.warning("%s: a lease was dropped without release", renewal.lock.name)
            elif self._check_due_lease(renewal, lease, current_time):
                _, ttl_power = math.frexp(renewal.ttl)
                leases_by_ttl_power[ttl_power].append((renewal, lease))
        for _, leases in sorted(leases_by_ttl_power.items()):
            yield from self._renew(leases, next_deadline)
        due_tokens = [
            (lease_id, abandoned)
            for lease_id, abandoned in list(self.abandoned.items())
            if abandoned.due <= now()
        ]
        if due_tokens:
            due_tokens.sort(key=lambda id_and_token: id_and_token[1].due)
            yield from self._release(due_tokens[:MAX_RELEASES_PER_BATCH])

    def _check_due_lease(self, renewal: Renewal, lease: BaseLease, current_time: float) -> bool:
        """Return whether to renew a lease that is due. If not, end or postpone its renewal."""
        if lease.outcome is not None:
            # The lease was released. Its renewal is only left because, in a cluster, it moved to
            # this node at the same time.
            self.renewals.pop(renewal.lease_id, None)
            return False
        if current_time >= lease.deadline or lease.loss is not None:
            if self.remove(renewal.lease_id):  # otherwise the lease was just released
                # renew_until is 0 if the lease is never renewed.
                reached_max_hold = 0 < renewal.renew_until <= current_time
                lease.mark_lost(LossReason.MAX_HOLD if reached_max_hold else LossReason.EXPIRED)
            return False
        if current_time >= renewal.renew_until:
            renewal.due = lease.deadline  # the time to mark the lease as lost
            return False
        return True

    def _renew(self, leases: Sequence[tuple[Renewal, BaseLease]], next_deadline: float) -> Batches:
        """Yield the batch that renews these leases, and evaluate its replies.

        `next_deadline` is the earliest deadline of all leases, including those that are not due.
        """
        sent_at = now()
        # The timeout of a sixth of the ttl leaves time to repeat the batch if the server is silent.
        # The next deadline may shorten the timeout, so that the loss of that lease is noticed in
        # time, but not to less than MIN_RENEWAL_TIMEOUT_SECONDS.
        shortest_ttl = min(renewal.ttl for renewal, _ in leases)
        timeout = min(shortest_ttl / 6, max(MIN_RENEWAL_TIMEOUT_SECONDS, next_deadline - sent_at))
        calls: list[Call] = []
        for renewal, _ in leases:
            _, token = renewal.lease_id
            args = build_renew_args(token, renewal.ttl, renewal.lock.fence_ttl)
            calls.append((load_script("renew"), renewal.choose_keys(sent_at), args))
        replies = yield calls, timeout
        round_trip_seconds = now() - sent_at
        for (renewal, lease), reply in zip(leases, replies, strict=True):
            if reply == 1:
                deadline = sent_at + renewal.ttl - compute_drift(renewal.ttl)
                lease.move_deadline_forward(deadline, sent_at)
                renewal.schedule_before(lease.deadline)
                renewal.lock.call_metrics_hook("renewed", round_trip_seconds)
            elif isinstance(reply, Exception):
                logger.warning("%s: not renewed, trying again: %s", renewal.lock.name, reply)
                renewal.due = min(lease.deadline, now() + renewal.ttl / 10)
            elif self.remove(renewal.lease_id):  # unless it was released meanwhile
                # -1: the lock is free. 0: another token has it.
                lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)

    def _release(self, batch: Sequence[tuple[LeaseId, AbandonedToken]]) -> Batches:
        """Yield the batch that releases these tokens, and schedule their next releases."""
        replies = yield [abandoned.release_call for _, abandoned in batch], RELEASE_TIMEOUT_SECONDS
        for (lease_id, abandoned), reply in zip(batch, replies, strict=True):
            if reply == 1:  # the lock was released, so no more releases are needed
                abandoned.reply_count = MAX_RELEASE_REPLIES
            elif not isinstance(reply, Exception):
                # An earlier command with the token may still be executed: release it again.
                abandoned.reply_count += 1
            if abandoned.reply_count >= MAX_RELEASE_REPLIES or now() >= abandoned.release_until:
                self.abandoned.pop(lease_id, None)
            abandoned.due = now() + SHORTEST_RELEASE_PAUSE_SECONDS * 2**abandoned.reply_count
        if all(isinstance(reply, Exception) for reply in replies):
            # The server is unreachable, so do not retry the other tokens yet.
            for abandoned in list(self.abandoned.values()):
                abandoned.due = max(abandoned.due, now() + SHORTEST_RELEASE_PAUSE_SECONDS)
