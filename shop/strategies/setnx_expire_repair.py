"""FLAW: a holder slower than the ttl deletes the next holder's lock.

Article A0 (docs/sources.md) repairs `setnx-expire` in this way: a buyer who finds the lock taken,
but without a ttl, sets a ttl. If the holder crashed between SETNX and EXPIRE, the lock expires one
ttl after the next buyer's try.

    time 0.0   A takes the lock for 3 s
    time 3.0   A has not finished; the key expires
    time 3.1   B takes the lock
    time 3.5   A is done and sends DEL: B's lock is gone
    time 3.6   C takes the lock, which B has too

The load test's fault `late-release` shows this flaw; `crash` no longer breaks this lock. As printed
in article A0, lock() does not return the identifier to the buyer who gets the lock, so that buyer
could never release the lock. The lock in article A0 is released by GET, a comparison and DEL; the
lock in this file is released by DEL alone. The comparison makes the flaw less likely, but does not
remove it: see token_get_del.py.
"""

from django.conf import settings
from django.db import transaction

from shop.ops.redis import locks_client
from shop.sale.locked import hold_lock
from shop.sale.points import point_reached
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import PollingLock


class SetnxExpireRepairLock(PollingLock):
    """A lock that is acquired with SETNX and then PEXPIRE, and released with DEL.

    A contender that finds the lock without a ttl gives it one.
    """

    def try_lock(self, token: str) -> bool:
        if self.client.setnx(self.key, token):
            point_reached.send("setnx:before_expire")  # a fault or a test can stop the thread here
            return bool(self.client.pexpire(self.key, self.ttl_ms))
        if self.client.pttl(self.key) == -1:  # the key has no ttl: its holder may have died
            self.client.pexpire(self.key, self.ttl_ms)
        return False

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))


def buy(attempt: Attempt) -> Receipt:
    lock = SetnxExpireRepairLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=50,
    title="SETNX, EXPIRE, repaired",
    article="A0",
    summary="A buyer sets the ttl of a lock that has none; a late DEL still frees another's lock.",
    highlights=("pttl(self.key)", "pexpire(self.key"),
    buy=buy,
)
