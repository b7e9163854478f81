"""Redisson's lock: counted holds, wake-up by publish, watchdog.

FLAW: a process that is paused, or a Redis that forgets (see locks/classic/reentrant.py).
"""

from __future__ import annotations

from locks.classic.reentrant import ReentrantLock
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="reentrant",
    title="Redisson's reentrant lock",
    article="A0 A3",
    summary="Its owner may take it again, waiters are woken; a paused process loses it unawares.",
    buy=sell_under(on_redis(ReentrantLock)),
    backend="redis",
    renewed=True,
)
