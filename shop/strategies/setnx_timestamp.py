"""The value is the time at which it ends, by the client's clock; GETSET takes it over.

FLAW: a contender whose clock is ahead steals it; it has no owner
(see locks/classic/setnx_timestamp.py).
"""

from __future__ import annotations

from locks.classic.setnx_timestamp import SetnxTimestampLock
from shop.clock import now
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="setnx-timestamp",
    title="SETNX with a timestamp",
    article="A1 A4",
    summary="Its end is a time by the client's clock: one that is ahead steals a live lock.",
    buy=sell_under(on_redis(SetnxTimestampLock, clock=now)),
    backend="redis",
    takes_over=True,
)
