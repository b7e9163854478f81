"""FLAW: a holder slower than the ttl loses the lock and does not notice.

This is the lock that article A4 (docs/sources.md) calls "right but laborious". SETNX and EXPIRE are
one script, so that no crash comes between them. Only the owner knows the key's value, and a script
deletes the key only if it still has that value.

    time 0.0   A takes the lock for 3 s and reads a stock of 1
    time 3.0   A has not finished; the key expires
    time 3.1   B takes the lock and reads a stock of 1 too
    time 3.2   B sells the unit
    time 3.5   A sells the same unit; its release finds B's token and, rightly, deletes nothing

The load test's faults `slow` and `pause` show this flaw. Since Redis 2.6.12 the command SET NX PX
does the same as the script: see token.py, which differs only in that line.
"""

from django.conf import settings
from django.db import transaction

from shop.lua import lua_script
from shop.ops.redis import locks_client
from shop.sale.locked import hold_lock
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import PollingLock


class SetnxExpireLuaLock(PollingLock):
    """A lock with one script to acquire it (SETNX, PEXPIRE) and one to release it (GET, DEL)."""

    def try_lock(self, token: str) -> bool:
        return bool(lua_script("setnx_expire")(self.client, [self.key], [token, self.ttl_ms]))

    def unlock(self, token: str) -> bool:
        return bool(lua_script("compare_and_delete")(self.client, [self.key], [token]))


def buy(attempt: Attempt) -> Receipt:
    lock = SetnxExpireLuaLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=60,
    title="SETNX and EXPIRE in Lua",
    article="A4",
    summary="SETNX and EXPIRE in one script; a holder slower than the ttl still loses the lock.",
    highlights=('lua_script("setnx_expire"', 'lua_script("compare_and_delete"'),
    buy=buy,
)
