"""FLAW: a holder slower than the ttl deletes the next holder's lock.

A0's second lock, and the one that A2 ends its first part with: SET NX PX takes it in one command,
and DEL gives it back without asking whose it is.

    time 0.0   A takes the lock for 3 s
    time 3.0   A is still at it; the key expires
    time 3.1   B takes the lock
    time 3.5   A is done and sends DEL: B's lock is gone
    time 3.6   C takes the lock, which B has too, and both sell the last unit

The fault `late-release` shows it. token.py differs in the line that releases.
"""

from shop.sale.locked import on_redis, sell_under
from shop.sale.polling import PollingLock
from shop.sale.strategy import Strategy


class SetpxDelLock(PollingLock):
    """SET NX PX, DEL."""

    def try_lock(self, token: str) -> bool:
        return bool(self.client.set(self.key, token, nx=True, px=self.ttl_ms))

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))


STRATEGY = Strategy(
    place=90,
    title="SET NX PX, plain DEL",
    article="A0 A2",
    summary="Atomic with its ttl, but whoever is late deletes the next holder's lock.",
    marks=("nx=True", "delete(self.key)"),
    buy=sell_under(on_redis(SetpxDelLock)),
)
