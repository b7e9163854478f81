"""FLAW: a holder slower than the ttl deletes the next holder's lock.

This is the second lock of article A0 (docs/sources.md), and the last in the first part of article
A2: SET NX PX acquires the lock in one command, and DEL releases it without a check of the owner.

    time 0.0   A takes the lock for 3 s
    time 3.0   A has not finished; the key expires
    time 3.1   B takes the lock
    time 3.5   A is done and sends DEL: B's lock is gone
    time 3.6   C takes the lock, which B has too, and both sell the last unit

The load test's fault `late-release` shows this flaw. token.py differs only in the line that
releases the lock.
"""

from django.conf import settings
from django.db import transaction

from shop.ops.redis import locks_client
from shop.sale.locked import hold_lock
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import PollingLock


class SetpxDelLock(PollingLock):
    """A lock that is acquired with SET NX PX, and released with DEL."""

    def try_lock(self, token: str) -> bool:
        return bool(self.client.set(self.key, token, nx=True, px=self.ttl_ms))

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))


def buy(attempt: Attempt) -> Receipt:
    lock = SetpxDelLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=90,
    title="SET NX PX, plain DEL",
    article="A0 A2",
    summary="Acquired with its ttl in one command, but a late DEL frees the next holder's lock.",
    highlights=("nx=True", "delete(self.key)"),
    buy=buy,
)
