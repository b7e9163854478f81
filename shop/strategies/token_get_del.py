"""FLAW: the lock may change hands between the check and the delete.

This is the unlock() of article A0 (docs/sources.md). Articles A1 (section 3.2) and A2 warn against
it. The client reads the value with GET, compares it with its token and then sends DEL: two commands
with a gap between them.

    time 2.99   A is done and sends GET: the value is A's token
    time 3.00   the key expires
    time 3.01   B takes the lock
    time 3.02   A's DEL arrives: B's lock is gone
    time 3.03   C takes the lock, which B has too, and both sell the last unit

The load test's fault `late-release` shows this flaw: it delays the thread between GET and DEL, at
the point token-get-del:before_del (shop/sale/points.py explains points). token.py compares and
deletes in one script.
"""

from django.conf import settings
from django.db import transaction

from shop.ops.redis import locks_client
from shop.sale.locked import hold_lock
from shop.sale.points import point_reached
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import PollingLock


class TokenGetDelLock(PollingLock):
    """A lock that is acquired with SET NX PX, and released with GET, a comparison and DEL."""

    def try_lock(self, token: str) -> bool:
        return bool(self.client.set(self.key, token, nx=True, px=self.ttl_ms))

    def unlock(self, token: str) -> bool:
        # A client with `decode_responses` returns str, others return bytes.
        if self.client.get(self.key) not in (token, token.encode()):
            return False
        # A fault or a test can delay the thread at this point.
        point_reached.send("token-get-del:before_del")
        return bool(self.client.delete(self.key))


def buy(attempt: Attempt) -> Receipt:
    lock = TokenGetDelLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=100,
    title="Token, GET then DEL",
    article="A0 A1 A2",
    summary="Compares in the client: if it expires between GET and DEL, DEL frees another's lock.",
    highlights=("self.client.get(self.key)", "delete(self.key)"),
    buy=buy,
)
