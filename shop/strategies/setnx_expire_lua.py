"""SETNX and EXPIRE in one script, a value of one's own, compare-and-delete.

FLAW: a holder slower than the ttl loses it (locks/classic/setnx_expire_lua.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.setnx_expire_lua import SetnxExpireLuaLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return SetnxExpireLuaLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="setnx-expire-lua",
    title="SETNX and EXPIRE in Lua",
    article="A4",
    summary="Both in one script: right but laborious, says A4; a slow holder loses it unawares.",
    buy=sell_under(lock_for),
    expected={"rush": "exact"},
)
