"""FLAW: two buyers that see the same expired lock both acquire it.

This is the example of article A4 (docs/sources.md) of how not to take over the lock of a dead
holder: DEL, then SETNX.

    time 0.0   A dies with the lock, which ends at 3.0
    time 3.1   B and C both read 3.0, a time in the past
    time 3.2   B sends DEL and SETNX, and has the lock
    time 3.3   C sends DEL, which deletes B's lock, and SETNX, and has the lock too

To reproduce the flaw, pause two contenders at the point setnx-timestamp:before_takeover, a place in
the code below (shop/sale/points.py explains points). setnx_timestamp.py differs only in the
take-over: with GETSET only the first contender gets the lock.
"""

from typing import Any

from django.conf import settings
from django.db import transaction

from shop.ops.redis import locks_client
from shop.sale.locked import hold_lock
from shop.sale.points import point_reached
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import PollingLock, wall_clock


class SetnxTimestampDelLock(PollingLock):
    """A lock whose value is the time at which it ends, in milliseconds since 1970.

    SETNX acquires the lock, DEL and SETNX take over an expired lock, DEL releases it.
    """

    def try_lock(self, token: str) -> bool:
        """Set the key. If it exists but its time has passed, delete it and set it again."""
        ends_at_ms = round(wall_clock() * 1000) + self.ttl_ms
        if self.client.setnx(self.key, ends_at_ms):
            return True
        current_end_ms: Any = self.client.get(self.key)
        if current_end_ms is None or int(current_end_ms) >= wall_clock() * 1000:
            return False
        point_reached.send("setnx-timestamp:before_takeover")  # a test can stop the thread here
        self.client.delete(self.key)
        return bool(self.client.setnx(self.key, ends_at_ms))

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))


def buy(attempt: Attempt) -> Receipt:
    lock = SetnxTimestampDelLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=80,
    title="Timestamp, DEL then SETNX",
    article="A4",
    summary="An expired lock is deleted and taken: two contenders at once both have it.",
    highlights=("delete(self.key)", "setnx(self.key"),
    buy=buy,
    takes_over=True,
)
