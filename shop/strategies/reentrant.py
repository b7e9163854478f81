"""FLAW: a holder that is paused for longer than the ttl loses the lock and does not notice.

Redisson's lock (articles A0 and A3 of docs/sources.md) is reentrant: its owner, a thread of a
client, may acquire it again, and a hash in Redis counts how often. In article A0, get() acquires
the lock and calls set(), which acquires it, too. With `token`, set() would wait for get() forever.
Waiters subscribe to a channel, on which the owner publishes a message when it releases the lock for
the last time. Unless the caller sets a lease time, a watchdog renews the lock each third of the
ttl.

    time 0.0   A takes the lock for 30 s and reads a stock of 1; its watchdog renews every 10 s
    time 5.0   A's whole process is stopped
    time 30    the key expires
    time 31    B takes the lock, reads a stock of 1 too and sells it
    time 60    A's process continues where it was, and sells the same unit

The load test's fault `pause` shows this flaw. If Redis loses the lock, the holder does not notice
either: `restart` and `failover` show that. With a lease time, as in article A3's
`tryLock(100, 10, SECONDS)`, nothing is renewed, and a slow holder loses the lock as under `token`.

Python reuses the id of a thread that has ended. So a new thread may own a lock that a dead thread
of the same process did not release. Redisson 3.16, which article A3 uses, stops renewing at the
first error, and has one watchdog for all acquisitions of an owner. Here each acquisition has its
own watchdog, which tries again after an error.
"""

import math
import os
import threading
import uuid

import redis
from django.conf import settings
from django.db import transaction

from locks import Lease, Lock, LockBackendError, LockNotHeld, LockTimeout, Release
from locks.clock import now
from locks.sans_io.protocol import to_milliseconds
from shop.lua import lua_script
from shop.ops.redis import locks_client
from shop.sale.locked import hold_lock
from shop.sale.points import point_reached
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.channel import open_channel
from shop.strategies.shared.polling_lock import RenewalThread

#: Redisson's LockPubSub.UNLOCK_MESSAGE.
UNLOCK_MESSAGE = 0
#: The id of this client in the owners of its locks.
CLIENT_ID = str(uuid.uuid4())


class ReentrantLock(Lock):
    """A lock whose owner, a thread, may acquire it several times.

    client        a redis.Redis without retries, with a socket timeout
    ttl           seconds that the lock survives its holder: Redisson's lockWatchdogTimeout
    has_watchdog  whether a watchdog renews the lock; if not, `ttl` is article A3's lease time

    Unlike the leases of the other locks, a lease belongs to the thread that acquired it: release()
    in another thread raises LockNotHeld. The release of an inner lease returns RELEASED, although
    the lock stays taken until the outer lease is released.
    """

    def __init__(
        self, client: redis.Redis, name: str, *, ttl: float = 30.0, has_watchdog: bool = True
    ) -> None:
        super().__init__(name, ttl=ttl)
        self.client = client
        self.key = f"lock:{name}"
        self.channel = f"redisson_lock__channel:{{{self.key}}}"
        self.ttl_ms = to_milliseconds(ttl)
        self.has_watchdog = has_watchdog

    @property
    def owner(self) -> str:
        """The id under which this thread owns locks.

        It contains the process id, because forked processes have the same CLIENT_ID.
        """
        return f"{CLIENT_ID}:{os.getpid()}:{threading.get_ident()}"

    def acquire(self, wait: float | None) -> Lease:
        started_at = now()
        deadline = math.inf if wait is None else started_at + wait
        lease, _ = self._try_lock(started_at)
        if lease is None and (wait is None or wait > 0):
            point_reached.send("reentrant:before_subscribe")  # a test can stop the thread here
            with open_channel(self.client, self.channel) as channel:
                channel.subscribe_attempted.wait(wait)
                # Try again: the release may have been published before the SUBSCRIBE.
                lease, lock_seconds_left = self._try_lock(started_at)
                while lease is None and (wait_left := deadline - now()) > 0:
                    # A holder that dies publishes nothing, so wait no longer than its ttl.
                    channel.wait(min(wait_left, lock_seconds_left))
                    lease, lock_seconds_left = self._try_lock(started_at)
        if lease is None:
            raise LockTimeout(name=self.name)
        return lease

    def _try_lock(self, started_at: float) -> tuple[Lease | None, float]:
        """Try to take the lock. Return the lease, or None and the seconds until the lock ends.

        started_at  the time at which the buyer began to wait
        """
        owner = self.owner
        sent_at = now()
        try:
            acquire = lua_script("reentrant_acquire")
            lock_ms_left = acquire(self.client, [self.key], [self.ttl_ms, owner])
        except redis.RedisError as error:
            raise LockBackendError(name=self.name) from error
        if lock_ms_left is not None:
            return None, max(0, lock_ms_left) / 1000  # PTTL is negative for a key without a ttl

        # `lease` and `renewal`, which these functions use, are assigned below, before any call.
        def renew() -> bool:
            """Renew the lock. Return False if this owner no longer has it."""
            sent_at = now()
            if not lua_script("reentrant_renew")(self.client, [self.key], [self.ttl_ms, owner]):
                return False
            lease.deadline = sent_at + self.ttl
            return True

        lease = Lease(
            name=self.name,
            token=owner,
            deadline=sent_at + self.ttl,
            release=lambda lease: self._release(lease, renewal),
            waited_seconds=now() - started_at,
        )
        renewal: RenewalThread | None = None
        if self.has_watchdog:
            renewal = RenewalThread(renew, interval_seconds=self.ttl / 3)
        return lease, 0.0

    def _release(self, lease: Lease, renewal: RenewalThread | None) -> Release:
        if lease.token != self.owner:
            raise LockNotHeld("another thread has the lock; release it there", name=self.name)
        if renewal:
            renewal.stop()
        args: list[str | int] = [UNLOCK_MESSAGE, self.ttl_ms, lease.token]
        try:
            reply = lua_script("reentrant_release")(self.client, [self.key, self.channel], args)
        except redis.RedisError:
            return Release.UNKNOWN
        if reply is None:
            return Release.EXPIRED
        return Release.RELEASED


def buy(attempt: Attempt) -> Receipt:
    lock = ReentrantLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=130,
    title="Redisson's reentrant lock",
    article="A0 A3",
    summary="Its owner may take it again, waiters are woken; a paused process still loses it.",
    highlights=('lua_script("reentrant_acquire"', "= RenewalThread("),
    buy=buy,
    renewed=True,
)
