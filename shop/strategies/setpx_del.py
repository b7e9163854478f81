"""SET NX PX, and plain DEL at the end.

FLAW: a late DEL frees the next one's lock (locks/classic/setpx_del.py tells how).
"""

from __future__ import annotations

from locks.classic.setpx_del import SetpxDelLock
from shop.strategies.locked import on_redis, sell_under
from shop.strategies.registry import Strategy, verdicts

STRATEGY = Strategy(
    name="setpx-del",
    title="SET NX PX, plain DEL",
    article="A0 A2",
    summary="Atomic with its ttl, but whoever is late deletes the next holder's lock.",
    buy=sell_under(on_redis(SetpxDelLock)),
    expected=verdicts(
        exact=(
            "rush crash lost-reply unknown-commit busy redis-down stall db-kill shutdown "
            "shutdown@short"
        ),
        oversold="slow late-release pause restart failover failover@sentinel eviction",
    ),
)
