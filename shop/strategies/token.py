"""A1's own lock: SET NX PX with a token for 3 s, asked for again every 100 ms.

FLAW: a holder slower than the ttl loses it (see locks/classic/token.py).
"""

from __future__ import annotations

from locks.classic.token import TokenLock
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="token",
    title="SET NX PX with a token",
    article="A0 A1 A4",
    summary="The lock has an owner and an end; a holder slower than its ttl loses it unawares.",
    buy=sell_under(on_redis(TokenLock, ttl="SHOP_TOKEN_TTL")),
    backend="redis",
)
