"""FLAW: a holder that dies locks everybody out forever.

A0's first lock (also A2, A4): SETNX takes it, DEL gives it back, and nothing else ever does.

    time 0.0   A takes the lock
    time 0.1   A's process is killed, or its DEL never arrives
    time 0.2   B finds the key and waits
    ...        B waits; the key has no ttl, so somebody has to delete it by hand

The fault `crash` shows it. The rush does not: as long as nobody dies, this lock is exact.
"""

import math

from shop.sale.locked import on_redis, sell_under
from shop.sale.polling import PollingLock
from shop.sale.strategy import Strategy


class SetnxLock(PollingLock):
    """SETNX, DEL. The `ttl` is not used."""

    def try_lock(self, token: str) -> bool:
        return bool(self.client.setnx(self.key, token))

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))

    def trusted(self) -> float:
        return math.inf


STRATEGY = Strategy(
    place=30,
    title="SETNX, DEL",
    article="A0 A2 A4",
    summary="No end of its own: a holder that crashes leaves it locked forever.",
    marks=("setnx(self.key", "delete(self.key)"),
    buy=sell_under(on_redis(SetnxLock)),
)
