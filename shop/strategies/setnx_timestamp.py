"""FLAW: the clients' clocks decide when the lock is free, and it has no owner.

This is the lock that article A1 (docs/sources.md) calls "not recommended"; article A4 shows it as a
way around the missing ttl. The key's value is the time at which the lock ends, by the clock of its
holder. A buyer who reads a time in the past sends GETSET, and has the lock if the reply is the
value that the buyer had read.

    time 0.0   A takes the lock until 3.0
    time 0.1   B, whose clock is 5 s ahead, reads 3.0, a time in its past, and takes the lock over
    time 0.2   A and B both have the lock

Article A1 itself lists three flaws. Every client's clock must be right. If several buyers take over
the lock at once, one of them has it, but the key's value is the time of the buyer that wrote last.
And any client's DEL releases the lock. The code has a fourth flaw: if a buyer sends GETSET after
the holder's DEL, the reply is empty, so this buyer does not have the lock. But its GETSET has set
the key, so no other buyer gets the lock until the time in the key has passed.

The version of article A4 differs in three ways. If the reply of GETSET is any time in the past, the
buyer has the lock, and not only if the reply is the value that it had read. Times are in whole
seconds, plus one. And before DEL the holder checks that its time has not passed, which would remove
the third flaw if all clocks agreed. The load test's faults `clock` and `late-release` show the
flaws of the version here.
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


class SetnxTimestampLock(PollingLock):
    """A lock whose value is the time at which it ends, in milliseconds since 1970.

    SETNX acquires the lock, GETSET takes over an expired lock, DEL releases it.
    """

    def try_lock(self, token: str) -> bool:
        """Set the key, or take it over if its time has passed."""
        ends_at_ms = round(wall_clock() * 1000) + self.ttl_ms
        if self.client.setnx(self.key, ends_at_ms):
            return True
        current_end_ms: Any = self.client.get(self.key)
        if current_end_ms is None or int(current_end_ms) >= wall_clock() * 1000:
            return False
        point_reached.send("setnx-timestamp:before_takeover")  # a test can stop the thread here
        return bool(self.client.getset(self.key, ends_at_ms) == current_end_ms)

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))


def buy(attempt: Attempt) -> Receipt:
    lock = SetnxTimestampLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=70,
    title="SETNX with a timestamp",
    article="A1 A4",
    summary="It ends by the client's clock: a client whose clock is ahead steals a live lock.",
    highlights=("setnx(self.key, ends_at_ms)", "getset(self.key"),
    buy=buy,
    takes_over=True,
)
