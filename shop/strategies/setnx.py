"""SETNX, and DEL at the end.

FLAW: a crash leaves it locked forever (see locks/classic/setnx.py).
"""

from __future__ import annotations

from locks.classic.setnx import SetnxLock
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="setnx",
    title="SETNX, DEL",
    article="A0 A2 A4",
    summary="No end of its own: a holder that crashes leaves it locked forever.",
    buy=sell_under(on_redis(SetnxLock)),
    backend="redis",
)
