"""SETNX, and DEL at the end.

FLAW: a crash leaves it locked for ever (locks/classic/setnx.py tells how).
"""

from __future__ import annotations

from locks.classic.setnx import SetnxLock
from shop.strategies.locked import on_redis, sell_under
from shop.strategies.registry import Strategy, verdicts

STRATEGY = Strategy(
    name="setnx",
    title="SETNX, DEL",
    article="A0 A2 A4",
    summary="No end of its own: a holder that crashes leaves it locked for ever.",
    buy=sell_under(on_redis(SetnxLock)),
    expected=verdicts(
        exact="rush slow pause unknown-commit redis-down eviction db-kill shutdown",
        oversold="restart failover failover@sentinel",
        deadlock="crash lost-reply busy stall shutdown@short",
    ),
)
