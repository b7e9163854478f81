"""FLAW: a holder loses the lock unnoticed if it is slower than the ttl, or if Redis loses the key.

This is the lock of articles A0, A1 and A4 (docs/sources.md). SET NX PX acquires it, with a value
that only the owner knows: the token. A script deletes the key only if it still has that value.

    time 0.0   A takes the lock for 3 s and reads a stock of 1
    time 3.0   A has not finished; the key expires
    time 3.1   B takes the lock and reads a stock of 1 too
    time 3.2   B sells the unit
    time 3.5   A sells the same unit; its release finds B's token and, rightly, deletes nothing

The load test's faults `slow` and `pause` show this flaw. Under `restart`, `eviction`, `failover`
and `split-brain` even a fast holder loses the lock: its key is gone, or B uses a master that never
had the key. docs/strategies.md lists all faults that break this lock. The locks in locks/ are
renewed, and have a fencing token that the database can check.
"""

from django.conf import settings
from django.db import transaction

from shop.lua import lua_script
from shop.ops.redis import locks_client
from shop.sale.locked import hold_lock
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import PollingLock


class TokenLock(PollingLock):
    """A lock that is acquired with SET NX PX. A script deletes the key if it has the token."""

    def try_lock(self, token: str) -> bool:
        return bool(self.client.set(self.key, token, nx=True, px=self.ttl_ms))

    def unlock(self, token: str) -> bool:
        return bool(lua_script("compare_and_delete")(self.client, [self.key], [token]))


def buy(attempt: Attempt) -> Receipt:
    # This ttl is 3 s, as in article A1 (docs/sources.md), and shorter than SHOP_LOCK_TTL.
    lock = TokenLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_TOKEN_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=110,
    title="SET NX PX with a token",
    article="A0 A1 A4",
    summary="It has an owner and a ttl; a holder slower than the ttl loses it without notice.",
    highlights=("nx=True", 'lua_script("compare_and_delete"'),
    buy=buy,
)
