"""FLAW: a holder that dies between SETNX and EXPIRE blocks all other buyers forever.

Articles A2 and A4 (docs/sources.md) warn of this lock: SETNX cannot set a ttl, so a second command
sets it.

    time 0.00   A sends SETNX and has the lock
    time 0.01   A's process is killed before it sends EXPIRE
    ...         the key has no ttl: as under `setnx`, no other buyer can take the lock any more

The load test's fault `crash` shows this flaw: it kills the process between the two commands, at the
point setnx:before_expire (shop/sale/points.py explains points). The fault `late-release` shows a
second flaw: DEL releases the lock without a check of the owner (see setpx_del.py). EXPIRE, as in
article A4, counts whole seconds. PEXPIRE, as in article A0, counts milliseconds, which a short ttl
needs.
"""

from django.conf import settings
from django.db import transaction

from shop.ops.redis import locks_client
from shop.sale.locked import hold_lock
from shop.sale.points import point_reached
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import PollingLock


class SetnxExpireLock(PollingLock):
    """A lock that is acquired with SETNX and then PEXPIRE, and released with DEL."""

    def try_lock(self, token: str) -> bool:
        if not self.client.setnx(self.key, token):
            return False
        point_reached.send("setnx:before_expire")  # a fault or a test can stop the thread here
        return bool(self.client.pexpire(self.key, self.ttl_ms))

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))


def buy(attempt: Attempt) -> Receipt:
    lock = SetnxExpireLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=40,
    title="SETNX, then EXPIRE",
    article="A2 A4",
    summary="A crash between the two commands locks it forever; a late DEL frees another's lock.",
    highlights=("setnx(self.key", "pexpire(self.key"),
    buy=buy,
)
