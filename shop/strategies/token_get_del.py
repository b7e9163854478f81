"""SET NX PX with a token; GET, compare in the client, DEL.

FLAW: it may expire between GET and DEL (see locks/classic/token_get_del.py).
"""

from __future__ import annotations

from locks.classic.token_get_del import TokenGetDelLock
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="token-get-del",
    title="Token, GET then DEL",
    article="A0 A1 A2",
    summary="Compares in the client: expired between GET and DEL, it deletes another's.",
    buy=sell_under(on_redis(TokenGetDelLock)),
    backend="redis",
)
