"""SETNX, then EXPIRE, and DEL at the end.

FLAW: a crash between the two leaves it locked forever; a late DEL frees the next one's
(see locks/classic/setnx_expire.py).
"""

from __future__ import annotations

from locks.classic.setnx_expire import SetnxExpireLock
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="setnx-expire",
    title="SETNX, then EXPIRE",
    article="A2 A4",
    summary="Two steps: a crash between them locks it forever, a late DEL frees another's.",
    buy=sell_under(on_redis(SetnxExpireLock)),
    backend="redis",
)
