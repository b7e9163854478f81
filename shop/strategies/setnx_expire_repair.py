"""SETNX, then EXPIRE; whoever finds it without a ttl gives it one.

FLAW: a late DEL frees the next one's lock (locks/classic/setnx_expire_repair.py tells how).
"""

from __future__ import annotations

from locks.classic.setnx_expire_repair import SetnxExpireRepairLock
from shop.strategies.locked import on_redis, sell_under
from shop.strategies.registry import Strategy, verdicts

STRATEGY = Strategy(
    name="setnx-expire-repair",
    title="SETNX, EXPIRE, repaired",
    article="A0",
    summary="Whoever finds it without a ttl gives it one; a late DEL still frees another's.",
    buy=sell_under(on_redis(SetnxExpireRepairLock)),
    expected=verdicts(
        exact=(
            "rush crash lost-reply unknown-commit busy redis-down stall db-kill shutdown "
            "shutdown@short"
        ),
        oversold="slow late-release pause restart failover failover@sentinel eviction",
    ),
    stops={"crash": "setnx:before_expire"},
)
