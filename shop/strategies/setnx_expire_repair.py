"""SETNX, then EXPIRE; whoever finds it without a ttl gives it one.

FLAW: a late DEL frees the next one's lock (see locks/classic/setnx_expire_repair.py).
"""

from __future__ import annotations

from locks.classic.setnx_expire_repair import SetnxExpireRepairLock
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="setnx-expire-repair",
    title="SETNX, EXPIRE, repaired",
    article="A0",
    summary="Whoever finds it without a ttl gives it one; a late DEL still frees another's.",
    buy=sell_under(on_redis(SetnxExpireRepairLock)),
    backend="redis",
)
