"""FLAW: a holder that is paused for longer than the ttl loses the lock and does not notice.

Articles A2 and A4 (docs/sources.md) propose this for a holder slower than the ttl: a daemon thread
in the holder's process, the watchdog, renews the lock while the holder works.

    time 0.0   A takes the lock for 3 s and reads a stock of 1; its thread renews every second
    time 0.5   A's whole process is stopped: a full garbage collection, a virtual machine moved
    time 3.0   the key expires
    time 3.1   B takes the lock, reads a stock of 1 too and sells it
    time 9.0   A's process continues where it was, and sells the same unit

The load test's fault `pause` shows this flaw; `slow` no longer breaks the lock. If Redis loses the
lock, the holder does not notice either: `restart` and `failover` show that.

The code in article A2 has a ttl of 30 s, and renews the lock first after 29 s. Then it renews the
lock every 20 s, each time with a ttl of 20 s. So from the second renewal on, the lock expires at
the very moment in which it is renewed. Here it is renewed each third of the ttl, as in article A3.

The thread in article A2 sends EXPIRE without a check of the owner, so it may renew the next
holder's lock. The key's value in the article is the id of the thread. Two processes may have
threads with the same id, so that one process may release or renew the other's lock. The token here
is unique to one acquisition.
"""

from functools import partial
from typing import ClassVar

from django.conf import settings
from django.db import transaction

from locks import Lease, Release
from locks.clock import now
from shop.lua import lua_script
from shop.ops.redis import locks_client
from shop.sale.locked import hold_lock
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import PollingLock, RenewalThread


class TokenWatchdogLock(PollingLock):
    """The lock of token.py, with a thread for each lease that renews the lease."""

    _renewals: ClassVar[dict[str, RenewalThread]] = {}  # by token

    def try_lock(self, token: str) -> bool:
        return bool(self.client.set(self.key, token, nx=True, px=self.ttl_ms))

    def unlock(self, token: str) -> bool:
        return bool(lua_script("compare_and_delete")(self.client, [self.key], [token]))

    def acquire(self, wait: float | None) -> Lease:
        lease = super().acquire(wait)
        renew = partial(self.renew, lease)
        self._renewals[lease.token] = RenewalThread(renew, interval_seconds=self.ttl / 3)
        return lease

    def renew(self, lease: Lease) -> bool:
        """Renew the lock. Return False if the lease has lost it."""
        sent_at = now()
        arguments: list[str | int] = [lease.token, self.ttl_ms]
        if not lua_script("compare_and_expire")(self.client, [self.key], arguments):
            return False
        lease.deadline = sent_at + self.ttl
        return True

    def _release(self, lease: Lease) -> Release:
        self._renewals.pop(lease.token).stop()
        return super()._release(lease)


def buy(attempt: Attempt) -> Receipt:
    lock = TokenWatchdogLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=120,
    title="Token with a watchdog",
    article="A2 A4",
    summary="A thread renews it while the holder works; a paused process renews nothing.",
    highlights=("= RenewalThread(", 'lua_script("compare_and_expire"'),
    buy=buy,
    renewed=True,
)
