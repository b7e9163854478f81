"""The value is the time at which it ends; expired, it is deleted and taken with SETNX.

FLAW: two contenders who both saw it expired both have it
(see locks/classic/setnx_timestamp_del.py).
"""

from __future__ import annotations

from locks.classic.setnx_timestamp_del import SetnxTimestampDelLock
from shop.clock import now
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="setnx-timestamp-del",
    title="Timestamp, DEL then SETNX",
    article="A4",
    summary="Expired, it is deleted and taken: two contenders at once both have it.",
    buy=sell_under(on_redis(SetnxTimestampDelLock, clock=now)),
    backend="redis",
    takes_over=True,
)
