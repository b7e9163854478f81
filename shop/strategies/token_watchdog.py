"""SET NX PX with a token, and a thread that renews it.

FLAW: a process that is paused, or a Redis that forgets (see locks/classic/token_watchdog.py).
"""

from __future__ import annotations

from locks.classic.token_watchdog import TokenWatchdogLock
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="token-watchdog",
    title="Token with a watchdog",
    article="A2 A4",
    summary="A thread renews it while the holder works; a paused process renews nothing.",
    buy=sell_under(on_redis(TokenWatchdogLock)),
    backend="redis",
    renewed=True,
)
