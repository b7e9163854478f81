"""SETNX and EXPIRE in one script, a value of one's own, compare-and-delete.

FLAW: a holder slower than the ttl loses it (see locks/classic/setnx_expire_lua.py).
"""

from __future__ import annotations

from locks.classic.setnx_expire_lua import SetnxExpireLuaLock
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    name="setnx-expire-lua",
    title="SETNX and EXPIRE in Lua",
    article="A4",
    summary="Both in one script: right but laborious, says A4; a slow holder loses it unawares.",
    buy=sell_under(on_redis(SetnxExpireLuaLock)),
    backend="redis",
)
