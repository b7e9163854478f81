"""FLAW: a holder that dies blocks all other buyers forever.

This is the first lock of article A0 (docs/sources.md), and of A2 and A4: SETNX acquires the lock,
and only DEL releases it.

    time 0.0   A takes the lock
    time 0.1   A's process is killed, or its DEL never arrives
    time 0.2   B finds the key and waits
    ...        B waits; the key has no ttl, so it must be deleted by hand

The load test's fault `crash` shows this flaw. A rush (many buyers at the same moment) does not show
it, because the lock works as long as no holder dies.
"""

import math

from django.conf import settings
from django.db import transaction

from shop.ops.redis import locks_client
from shop.sale.locked import hold_lock
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import PollingLock


class SetnxLock(PollingLock):
    """A lock that is acquired with SETNX, and released with DEL. It has no ttl."""

    def try_lock(self, token: str) -> bool:
        return bool(self.client.setnx(self.key, token))

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))

    def get_trusted_seconds(self) -> float:
        return math.inf  # the key has no ttl


def buy(attempt: Attempt) -> Receipt:
    lock = SetnxLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=30,
    title="SETNX, DEL",
    article="A0 A2 A4",
    summary="It has no ttl: a holder that crashes leaves it locked forever.",
    highlights=("setnx(self.key", "delete(self.key)"),
    buy=buy,
)
