"""SET NX PX with a token, and a thread that renews it.

FLAW: a process that is paused, or a Redis that forgets (locks/classic/token_watchdog.py tells how).
"""

from __future__ import annotations

from locks.classic.token_watchdog import TokenWatchdogLock
from shop.strategies.locked import on_redis, sell_under
from shop.strategies.registry import Strategy, verdicts

STRATEGY = Strategy(
    name="token-watchdog",
    title="Token with a watchdog",
    article="A2 A4",
    summary="A thread renews it while the holder works; a paused process renews nothing.",
    buy=sell_under(on_redis(TokenWatchdogLock)),
    expected=verdicts(
        exact=(
            "rush crash slow late-release lost-reply unknown-commit busy redis-down stall "
            "db-kill shutdown shutdown@short"
        ),
        oversold="pause restart failover failover@sentinel eviction",
    ),
)
