"""SET NX PX, and plain DEL at the end.

FLAW: a late DEL frees the next one's lock (see locks/classic/setpx_del.py).
"""

from __future__ import annotations

from locks.classic.setpx_del import SetpxDelLock
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="setpx-del",
    title="SET NX PX, plain DEL",
    article="A0 A2",
    summary="Atomic with its ttl, but whoever is late deletes the next holder's lock.",
    buy=sell_under(on_redis(SetpxDelLock)),
    backend="redis",
)
